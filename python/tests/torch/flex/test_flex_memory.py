"""What is kept of the tensors that a score_mod reads: from call to call, and for CUDA graphs."""

import gc

import pytest
import torch

from comparing import DEVICE, ON_GPU, assert_close
from flexing import qkv, torch_flex_attention
from stof.compat.flex import flex_attention, score_mods, tables
from zoo import Case, causal_mod, on_device

CASE = Case(causal_mod, None, None, 33, 33)


def member_mod():
    members = on_device([0, 7, 31])
    return lambda s, b, h, q, kv: s + torch.isin(kv, members)


class Biased:
    __hash__ = None

    def __init__(self):
        self.members = on_device([0, 7, 31])

    def __call__(self, s, b, h, q, kv):
        return s + torch.isin(kv, self.members)

    def method(self, s, b, h, q, kv):
        return self(s, b, h, q, kv)


@pytest.fixture
def reads(monkeypatch):
    """The tensors read so far: on a GPU each read waits for it, and no capture can have one."""
    read = []
    of = tables.Memo.of

    def counted(memo, what, tensor, compute):
        def computed(tensor):
            read.append(tensor)
            return compute(tensor)

        return of(memo, what, tensor, computed)

    monkeypatch.setattr(tables.Memo, "of", counted)
    return read


@pytest.mark.parametrize("kind", ["function", "object", "method", "made_in_each_call"])
def test_tensors_are_read_once_while_they_do_not_change(kind, reads):
    q, k, v = qkv(CASE)
    biased, function = Biased(), member_mod()
    members = biased.members
    for _ in range(3):
        if kind == "function":
            mod = function
        elif kind == "made_in_each_call":
            mod = lambda s, b, h, q, kv: s + torch.isin(kv, members)
        else:
            mod = biased if kind == "object" else biased.method
        flex_attention(q, k, v, mod)
    assert len(reads) == 1


def test_a_change_is_read(reads):
    q, k, v = qkv(CASE)
    biased = Biased()
    for value in (31, 2):
        biased.members[2] = value
        expected, _ = torch_flex_attention(q, k, v, biased)
        assert_close(flex_attention(q, k, v, biased), expected)
    assert len(reads) == 2


def test_functions_are_forgotten():
    q, k, v = qkv(CASE)
    gc.collect()
    before = len(score_mods._memos)
    for _ in range(5):
        flex_attention(q, k, v, member_mod())
        flex_attention(q, k, v, Biased().method)
    gc.collect()
    assert len(score_mods._memos) == before


@pytest.mark.parametrize("dtype", [torch.float64, torch.uint8, torch.float32])
def test_a_scalar_is_copied_once(dtype):
    scalar = torch.tensor(3, dtype=dtype)
    device = torch.device("meta")  # any but the scalar's
    first = score_mods.operand("scalar", scalar.reshape(1), device)
    for _ in range(3):
        assert score_mods.operand("scalar", scalar.reshape(1), device) is first
    scalar.fill_(4)
    assert score_mods.operand("scalar", scalar.reshape(1), device) is not first


def test_what_a_graph_holds_is_kept(monkeypatch):
    entry, gpu = ("entry",), torch.device("cuda")
    monkeypatch.setattr(tables, "_recorded", {})
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    tables.keep_if_recorded(entry, gpu)
    assert not tables._recorded
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    tables.keep_if_recorded(entry, torch.device("cpu"))
    assert not tables._recorded
    assert tables.keep_if_recorded(entry, gpu) is entry
    assert list(tables._recorded.values()) == [entry]


if ON_GPU:

    def captured(call):
        call()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = call()
        return graph, out

    def test_scalars_of_the_host_outlive_their_place_in_the_cache():
        q, k, v = qkv(CASE)
        scalar = torch.tensor(0.25, dtype=torch.float64)
        mod = lambda s, b, h, q, kv: s * scalar
        graph, out = captured(lambda: flex_attention(q, k, v, mod))
        for number in range(2 * score_mods._MAX_SCALARS):
            other = torch.tensor(float(number))
            flex_attention(q, k, v, lambda s, b, h, q, kv: s + other)
        torch.cuda.synchronize()
        _ = [torch.full((1,), 9.0, device=DEVICE) for _ in range(500)]
        graph.replay()
        assert_close(out, torch_flex_attention(q, k, v, mod)[0])

    def test_members_are_read_before_capturing():
        q, k, v = qkv(CASE)
        biased = Biased()
        expected, _ = torch_flex_attention(q, k, v, biased)
        graph, out = captured(lambda: flex_attention(q, k, v, biased))
        for value in (2, 3, 4):  # the table made for the capture is no longer needed here
            biased.members[2] = value
            flex_attention(q, k, v, biased)
        _ = [torch.ones(32, dtype=torch.bool, device=DEVICE) for _ in range(500)]
        graph.replay()
        assert_close(out, expected)

    def test_a_static_index_by_a_tensor_is_read_before_capturing():
        q, k, v = qkv(CASE)
        table, place = on_device([[0.5] * 33, [0.25] * 33]), on_device(1)
        mod = lambda s, b, h, q, kv: s * table[place, kv]
        graph, out = captured(lambda: flex_attention(q, k, v, mod))
        graph.replay()
        assert_close(out, torch_flex_attention(q, k, v, mod)[0])
