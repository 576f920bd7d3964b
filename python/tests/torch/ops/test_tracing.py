"""Fake and meta tensors, autocast, export, subclasses, modes, and torch's own check of
operators."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.library import opcheck

import stof
from comparing import DEVICE, DTYPE, assert_close, randn, reference
from stof.torch_ops import operators

MASK = stof.masks.causal()


def qkv(dtype=DTYPE):
    return tuple(randn(2, 4, 33, 16, dtype=dtype, seed=i) for i in range(3))


def expected():
    return reference(*qkv(), torch.ones(33, 33, dtype=torch.bool).tril())[0]


def attention_arguments(q, k, v, mask="causal", bound=None, bias=None, return_lse=True):
    return (
        q,
        k,
        v,
        mask,
        bound,
        None,
        None,
        0,
        0,
        "top_left",
        None,
        0.0,
        None,
        bias,
        None,
        None,
        0,
        True,
        None,
        "",
        [],
        return_lse,
    )


@pytest.mark.parametrize("return_lse", [False, True])
def test_opcheck_attention(return_lse):
    bias = randn(1, 4, 33, 33, dtype=torch.float32)
    arguments = attention_arguments(*qkv(), bias=bias, return_lse=return_lse)
    opcheck(operators.attention, arguments)


def test_opcheck_run():
    plan = stof.plan(MASK, batch=2, num_heads=4, seq_q=33, head_dim=16, dtype=DTYPE, device=DEVICE)
    opcheck(operators.run, (plan._name, *qkv(), None, None, None, None, []))


def test_fake_tensors():
    with FakeTensorMode():
        q = torch.empty(2, 4, 33, 16, dtype=DTYPE, device=DEVICE)
        v = torch.empty(2, 4, 33, 8, dtype=DTYPE, device=DEVICE)
        out, lse = stof.attention(q, q, v, MASK, return_lse=True)
    assert out.shape == (2, 4, 33, 8) and out.dtype == DTYPE and out.device.type == DEVICE
    assert lse.shape == (2, 4, 33) and lse.dtype == torch.float32


def test_meta_tensors():
    q = torch.empty(2, 4, 33, 16, dtype=DTYPE, device="meta")
    assert stof.attention(q, q, q, MASK).shape == q.shape


@pytest.mark.parametrize("kind", ["meta", "fake"])
def test_without_memory_beside_those_with_some(kind):
    """No result comes of one operand that has none."""
    real = qkv()
    if kind == "meta":
        given = [x.to("meta") for x in real]
    else:
        mode = FakeTensorMode()
        given = [mode.from_tensor(x) for x in real]
    plan = stof.plan(MASK, batch=2, num_heads=4, seq_q=33, head_dim=16, dtype=DTYPE, device=DEVICE)
    bias = randn(1, 4, 33, 33, dtype=torch.float32)
    lengths = torch.tensor([0, 33], dtype=torch.int32)
    with pytest.raises(stof.InvalidArgument, match="^bias: expected a (fake )?tensor .*like q"):
        stof.attention(*given, MASK, bias=bias)
    for which, name in ((0, "k"), (1, "k"), (2, "v")):
        operands = [given[i] if i == which else x for i, x in enumerate(real)]
        packed = [x[0].transpose(0, 1) for x in operands]
        for call in (
            lambda: stof.attention(*operands, MASK),
            lambda: plan.run(*operands),
            lambda: stof.varlen_attention(*packed, lengths, lengths, MASK),
        ):
            with pytest.raises(stof.InvalidArgument, match=f"^{name}: expected a .*tensor"):
                call()


def test_recorded_by_make_fx():
    q, k, v = qkv()
    graph = make_fx(lambda q, k, v: stof.attention(q, k, v, MASK), tracing_mode="fake")(q, k, v)
    assert "stof.attention" in graph.code
    assert_close(graph(q, k, v), expected())


def test_exported():
    class Module(torch.nn.Module):
        def forward(self, q, k, v):
            return stof.attention(q, k, v, "causal")

    program = torch.export.export(Module(), qkv())
    assert_close(program.module()(*qkv()), expected())


def test_tensor_subclass():
    class Marked(torch.Tensor):
        pass

    q, k, v = qkv()
    out = stof.attention(q.as_subclass(Marked), k, v, MASK)
    assert type(out) is Marked
    assert_close(out.as_subclass(torch.Tensor), expected())


def test_dispatch_mode_sees_the_operator():
    from torch.utils._python_dispatch import TorchDispatchMode

    class Names(TorchDispatchMode):
        def __init__(self):
            super().__init__()
            self.names = []

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.names.append(str(func))
            return func(*args, **(kwargs or {}))

    with Names() as seen:
        out = stof.attention(*qkv(), MASK)
    assert "stof.attention.default" in seen.names
    assert_close(out, expected())


@pytest.mark.parametrize("compile", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_autocast_as_scaled_dot_product_attention(compile, dtype):
    q, k, v = qkv(dtype)

    def call(q, k, v):
        return stof.attention(q, k, v, MASK)

    if compile:
        torch._dynamo.reset()
        call = torch.compile(call, fullgraph=True)
    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        out = call(q, k, v)
        theirs = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    assert out.dtype == theirs.dtype == torch.bfloat16
    assert_close(out, theirs, torch.bfloat16)


def test_autocast_that_is_off():
    with torch.autocast(DEVICE, dtype=torch.bfloat16, enabled=False):
        assert stof.attention(*qkv(), MASK).dtype == DTYPE


def test_threads_under_compile():
    """Each thread with shapes of its own, on one compiled function."""
    import threading

    torch._dynamo.reset()
    run = torch.compile(lambda q: stof.attention(q, q, q, MASK), fullgraph=True, dynamic=True)
    run(randn(1, 2, 8, 16))
    failures = []

    def work(seq):
        try:
            q = randn(1, 2, seq, 16)
            for _ in range(5):
                assert_close(run(q), reference(q, q, q, torch.ones(seq, seq).tril().bool())[0])
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(9 + i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures


def test_jit_trace_records_the_operator():
    q, k, v = (randn(1, 2, 9, 8, seed=s) for s in range(3))
    traced = torch.jit.trace(
        lambda q, k, v: stof.attention(q, k, v, "causal"), (q, k, v), check_trace=False
    )
    other = randn(1, 2, 9, 8, seed=9)
    assert torch.equal(traced(other, k, v), stof.attention(other, k, v, "causal"))
