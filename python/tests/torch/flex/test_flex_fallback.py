"""mask_mods without an expression: evaluated, with a warning that says why and where."""

import warnings

import pytest
import torch

from comparing import DEVICE, assert_close
from flexing import pairs, qkv, torch_flex_attention, torch_lists, torch_pairs
from stof import InvalidArgument
from stof.compat.flex import TraceWarning, create_block_mask, evaluation, flex_attention
from zoo import Case, on_device, random

weights = random(4, 45, seed=8)
tokens = on_device([0, 7, 31])


def float_table(b, h, q, kv):
    return weights[h, kv] > 0.4


def any_of(b, h, q, kv):
    return (q >= kv) | (kv == tokens).any()


def float_arithmetic(b, h, q, kv):
    return (q * 0.75 >= kv) & (b >= 0)


def helper(q, kv):
    return torch.logit(q / 100.0) > torch.logit(kv / 100.0)


def unknown_function(b, h, q, kv):
    return helper(q, kv)


CASES = {
    "float_table": (Case(float_table, None, 4, 45, 45), "torch.float32", "float_table"),
    "any_of": (Case(any_of, None, None, 33, 40), "shape (3,)", "any_of"),
    "float_arithmetic": (Case(float_arithmetic, 2, None, 40, 40), "floats", "float_arithmetic"),
    "unknown_function": (Case(unknown_function, None, None, 20, 20), "floats in a mask", "helper"),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("chunk", [1, 100, 1 << 22])
def test_pairs_are_those_of_vmap(name, chunk, monkeypatch):
    monkeypatch.setattr(evaluation, "_CHUNK_PAIRS", chunk)
    case, why, where = CASES[name]
    with pytest.warns(TraceWarning) as caught:
        block_mask = create_block_mask(*case, device=DEVICE)
    assert len(caught) == 1
    message = str(caught[0].message)
    assert why in message and "test_flex_fallback.py:" in message and f"in {where}" in message
    assert caught[0].filename == __file__
    assert torch.equal(pairs(block_mask), torch_pairs(*case).expand(block_mask.shape))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.filterwarnings("ignore::stof.compat.flex.TraceWarning")
def test_attention(name):
    case, _, _ = CASES[name]
    q, k, v = qkv(case)
    expected, _ = torch_flex_attention(q, k, v, mask_mod=case.mod)
    block_mask = create_block_mask(*case, device=DEVICE)
    assert_close(flex_attention(q, k, v, block_mask=block_mask), expected)
    assert_close(flex_attention(q, k, v, block_mask=torch_lists(case.mod, case)), expected)


def test_evaluated_once_while_nothing_changes():
    case, _, _ = CASES["any_of"]
    q, k, v = qkv(case)
    with pytest.warns(TraceWarning):
        block_mask = create_block_mask(*case, device=DEVICE)
    flex_attention(q, k, v, block_mask=block_mask)
    resolved = block_mask.resolver.current
    with warnings.catch_warnings():
        warnings.simplefilter("error", TraceWarning)
        flex_attention(q, k, v, block_mask=block_mask)
    assert block_mask.resolver.current is resolved


def test_changes_are_seen():
    changing, limit = on_device([0, 7, 31]), 10

    def mod(b, h, q, kv):
        return (kv == changing).any() | (kv < limit)

    case = Case(mod, None, None, 40, 40)
    with pytest.warns(TraceWarning):
        block_mask = create_block_mask(*case, device=DEVICE)
        assert torch.equal(pairs(block_mask), torch_pairs(*case))
        changing[2] = 20
        assert torch.equal(pairs(block_mask), torch_pairs(*case))
        limit = 3
        assert torch.equal(pairs(block_mask), torch_pairs(*case))


def test_heads_and_batches_are_told_apart_where_they_matter():
    """Created for one batch entry, used with three: as torch's eager evaluation."""

    def mod(b, h, q, kv):
        return (q * 1.5 >= kv) & (kv >= b)

    case = Case(mod, None, None, 20, 20)
    with pytest.warns(TraceWarning):
        block_mask = create_block_mask(*case, device=DEVICE)
    q, k, v = qkv(case, batch=3)
    expected, _ = torch_flex_attention(q, k, v, mask_mod=mod)
    assert_close(flex_attention(q, k, v, block_mask=block_mask), expected)


def branches(b, h, q, kv):
    return q >= kv if q > 5 else kv >= q


def not_boolean(b, h, q, kv):
    return q - kv


def vector(b, h, q, kv):
    return kv == tokens


@pytest.mark.parametrize(
    "mod, messages",
    [
        (branches, ["truth of a symbolic value", "in branches", "torch.vmap"]),
        (not_boolean, ["a mask_mod returns a boolean", "torch.int64"]),
        (vector, ["shape (3,)", "expected torch.bool of shape ()"]),
    ],
)
def test_what_fails_altogether(mod, messages):
    with pytest.raises(InvalidArgument) as caught:
        create_block_mask(mod, None, None, 20, 20, device=DEVICE)
    for message in messages:
        assert message in str(caught.value)


def test_memory_is_bounded():
    """8 bytes a pair of 3000 x 3000 would be 72 MB; a chunk is 2^22 pairs."""
    for rows in evaluation.row_chunks(3000, 3000):
        assert len(rows) * 3000 <= 1 << 22
    assert [len(rows) for rows in evaluation.row_chunks(5, 1 << 30)] == [1] * 5
    assert {len(rows) % 64 for rows in evaluation.row_chunks(6400, 2000, 64)} == {0}


def test_a_branch_on_batch_or_head_is_refused():
    """As by torch: one answer for all heads would be taken for each."""
    document = on_device([0] * 10 + [1] * 10)

    def on_head(b, h, q, kv):
        return q >= kv if h == 0 else document[q] == document[kv]

    def on_batch(b, h, q, kv):
        return q >= kv if b == 0 else document[q] == document[kv]

    for function in (on_head, on_batch):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TraceWarning)
            with pytest.raises(InvalidArgument, match=function.__name__):
                create_block_mask(function, 2, 2, 20, 20, device=DEVICE)


def test_heads_that_are_read_past_torch_functions():
    """An attribute of the index, and a scripted function, which torch's function modes don't see."""

    @torch.jit.script
    def scripted(h: torch.Tensor, distance: torch.Tensor) -> torch.Tensor:
        return (h == 1) | (distance < 5)

    attribute = lambda b, h, q, kv: (q * 1.5 >= kv) & ((h.T == 1) | (q - kv < 5))  # noqa: E731
    hidden = lambda b, h, q, kv: (q * 1.5 >= kv) & scripted(h, q - kv)  # noqa: E731
    want = lambda b, h, q, kv: (q * 1.5 >= kv) & ((h == 1) | (q - kv < 5))  # noqa: E731
    # On a GPU TorchScript fuses, and cannot run under torch.vmap: an error, no wrong mask.
    for mask_mod in (attribute, hidden) if DEVICE == "cpu" else (attribute,):
        got = evaluation.evaluate(mask_mod, 1, 4, 23, 23, DEVICE).visible.expand(1, 4, 23, 23)
        q, kv = torch.arange(23)[:, None], torch.arange(23)[None]
        for h in range(4):
            assert torch.equal(got[0, h], want(0, torch.tensor(h), q, kv))
