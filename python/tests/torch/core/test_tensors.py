"""stof.attention, varlen_attention and plans on torch tensors: layouts, places, options, refusals."""

import gc
import threading

import numpy as np
import pytest
import stof
import torch
from comparing import DEVICE, DTYPE, DTYPES, ON_GPU, assert_close, randn, reference, when_compiled
from stof import masks

MASKS = {
    "all": masks.all(),
    "none": masks.none(),
    "causal": masks.causal(),
    "sliding": masks.sliding(9),
    "prefix-LM": masks.causal() | masks.prefix(7),
    "document": masks.document([10, 1, 40, 26]),
    "dilated": masks.dilated(16, 2),
    "longformer": masks.longformer(6, 2),
    "neighbourhood": masks.neighbourhood([7, 11], [3, 5]),
    "padding": masks.key_lengths([77, 30]),
    "heads": masks.per_head([masks.causal(), masks.sliding(3), masks.chunked(8), masks.all()]),
    "random": masks.random(0.2, seed=3),
}
SEQ = 77


def qkv(seq=SEQ, dtype=DTYPE, heads_kv=4, width=16):
    return (
        randn(2, 4, seq, width, dtype=dtype),
        randn(2, heads_kv, seq, width, dtype=dtype, seed=1),
        randn(2, heads_kv, seq, width, dtype=dtype, seed=2),
    )


def dense(mask, seq=SEQ):
    return torch.from_numpy(mask.to_dense(seq, batch=2, num_heads=4)).to(DEVICE)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", MASKS)
def test_masks(name, dtype):
    q, k, v = qkv(dtype=dtype, heads_kv=2)
    out, lse = stof.attention(q, k, v, MASKS[name], enable_gqa=True, return_lse=True)
    assert out.dtype == dtype and out.device == q.device and out.is_contiguous()
    expected, sums = reference(q, k, v, dense(MASKS[name]))
    assert_close(out, expected, dtype)
    assert_close(lse, sums, dtype)


@pytest.mark.parametrize("name", ["causal", "sliding", "heads"])
def test_agrees_with_scaled_dot_product_attention(name):
    q, k, v = qkv()
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, dense(MASKS[name]))
    assert_close(stof.attention(q, k, v, MASKS[name]), expected)


def test_layouts():
    q, k, v = qkv()
    visible = dense(MASKS["causal"])

    def same(q, k, v):
        assert_close(stof.attention(q, k, v, "causal"), reference(q, k, v, visible)[0])

    same(*(x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v)))
    packed = randn(SEQ, 2, 12, 16, seed=5)
    same(*packed.permute(1, 2, 0, 3).chunk(3, 1))
    same(q, k[:, :1].expand_as(k), v[:, :, :1].expand_as(v))
    same(*(x.transpose(2, 3).contiguous().transpose(2, 3) for x in (q, k, v)))  # copied
    wide = randn(2, 4, SEQ, 32, seed=6)
    same(wide[..., 1:17], k, v)  # addresses and strides of every alignment
    same(wide[..., ::2], k, v)
    odd = randn(2, 4, SEQ, 17, seed=7)
    same(odd[..., :16], odd[..., 1:], v)
    same(torch.nn.Parameter(q, requires_grad=False), k, v)


def test_a_negated_view_is_refused_or_read_as_what_it_is():
    q, k, v = qkv(dtype=torch.float32)
    negated = torch._neg_view(q)
    if ON_GPU:
        negated, k, v = torch._neg_view(q.to(DTYPE)), k.to(DTYPE), v.to(DTYPE)
    for _ in range(2):
        with pytest.raises(stof.InvalidArgument, match="q: .*resolve_neg"):
            stof.attention(negated, k, v)
        plain = negated.resolve_neg()
        assert_close(stof.attention(plain, k, v), reference(plain, k, v, dense(MASKS["all"]))[0])


def test_options():
    q, k, v = qkv()
    bias = randn(1, 4, 1, SEQ, dtype=torch.float32)
    sink = randn(4, dtype=torch.float32)
    out, lse = stof.attention(
        q, k, v, "causal", scale=0.3, softcap=4.0, bias=bias, sink=sink, return_lse=True
    )
    expected = reference(
        q, k, v, dense(MASKS["causal"]), scale=0.3, softcap=4.0, bias=bias, sink=sink
    )
    assert_close(out, expected[0])
    assert_close(lse, expected[1])
    assert_close(
        stof.attention(q, k, v, "causal", bias=bias.half()),
        reference(q, k, v, dense(MASKS["causal"]), bias=bias.half())[0],
    )


def test_a_scale_that_changes_in_place_is_read_in_every_call():
    q, k, v = qkv()
    scale, number = torch.tensor(0.5), torch.tensor([2.0, 3.0])
    for value in (0.5, 1.0, 0.5):
        scale.fill_(value)
        for _ in range(2):
            out = stof.attention(q, k, v, "causal", scale=scale)
            assert torch.equal(out, stof.attention(q, k, v, "causal", scale=value))
    with pytest.raises(stof.InvalidArgument, match="scale: expected a number, got tensor"):
        stof.attention(q, k, v, "causal", scale=number)


def test_boolean_tensors_are_masks():
    q, k, v = qkv()
    seen = torch.rand(2, 1, SEQ, SEQ, device=DEVICE) < 0.3
    assert_close(stof.attention(q, k, v, seen), reference(q, k, v, seen)[0])
    plan = stof.plan(seen, batch=2, num_heads=4, seq_q=SEQ, head_dim=16, dtype=DTYPE, device=DEVICE)
    before = seen.clone()
    seen.zero_()
    assert_close(plan.run(q, k, v), reference(q, k, v, before)[0])
    assert_close(stof.attention(q, k, v, seen), reference(q, k, v, seen)[0])
    with pytest.raises(stof.InvalidArgument, match="mask: expected booleans.*bias="):
        stof.attention(q, k, v, torch.zeros(SEQ, SEQ, device=DEVICE))
    if ON_GPU:
        with pytest.raises(stof.InvalidArgument, match="mask: expected .* on cuda:0 .* on cpu"):
            stof.attention(q, k, v, seen.cpu())


def test_packed_sequences():
    q, k, v = (randn(60, 4, 16, seed=i) for i in range(3))
    starts = torch.tensor([0, 11, 11, 60], dtype=torch.int32, device=DEVICE)
    out, lse = stof.varlen_attention(q, k, v, starts, mask="causal", return_lse=True)
    assert lse.shape == (4, 60)
    for a, b in ((0, 11), (11, 60)):
        rows = [x[a:b].transpose(0, 1)[None] for x in (q, k, v)]
        visible = torch.ones(b - a, b - a, dtype=torch.bool, device=DEVICE).tril()
        expected, sums = reference(*rows, visible)
        assert_close(out[a:b].transpose(0, 1)[None], expected)
        assert_close(lse[None, :, a:b], sums)


class Foreign:
    def __init__(self, tensor):
        self.tensor = tensor
        self.shape, self.dtype = tensor.shape, tensor.dtype

    def __dlpack__(self, **options):
        return self.tensor.__dlpack__(**{k: v for k, v in options.items() if k == "stream"})

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()

    def __array_namespace__(self):
        return Foreign

    @staticmethod
    def from_dlpack(array):
        return Foreign(torch.from_dlpack(array))


def test_other_libraries_by_dlpack():
    dtype = DTYPE if ON_GPU else torch.float32
    tensors = qkv(dtype=dtype)
    out = stof.attention(*map(Foreign, tensors), "causal")
    assert isinstance(out, Foreign) and out.tensor.device == tensors[0].device
    assert torch.equal(out.tensor, stof.attention(*tensors, "causal"))


@pytest.mark.skipif(not ON_GPU, reason="streams are a GPU's")
def test_other_libraries_and_a_stream_given_by_number():
    """The stream waits for theirs, and theirs for it."""
    home, side = torch.cuda.Stream(), torch.cuda.Stream()

    class Streamed(Foreign):
        def __dlpack__(self, **options):
            with torch.cuda.stream(home):
                return super().__dlpack__(**options)

        def __array_namespace__(self):
            return Streamed

        @staticmethod
        def from_dlpack(array):
            capsule = array.__dlpack__(stream=home.cuda_stream)
            return Streamed(torch.utils.dlpack.from_dlpack(capsule))

    values = tuple(randn(1, 8, 512, 64, seed=i) for i in range(3))
    plan = stof.plan(
        "causal", batch=1, num_heads=8, seq_q=512, head_dim=64, dtype=DTYPE, device=DEVICE
    )
    expected = plan.run(*values)
    late = tuple(torch.full_like(x, float("nan")) for x in values)
    plan.run(*late, stream=side.cuda_stream)  # what follows builds nothing
    torch.cuda.synchronize()
    with torch.cuda.stream(home):
        torch.cuda._sleep(50_000_000)
        for place, value in zip(late, values):
            place.copy_(value)
    with torch.cuda.stream(side):
        torch.cuda._sleep(100_000_000)
    out = plan.run(*map(Streamed, late), stream=side.cuda_stream)
    with torch.cuda.stream(home):
        result = out.tensor.clone()
    torch.cuda.synchronize()
    assert torch.equal(result, expected)
    assert torch.cuda.current_stream() == torch.cuda.default_stream()


def test_threads_share_a_plan():
    q, k, v = qkv()
    plan = stof.plan(
        "causal", batch=2, num_heads=4, seq_q=SEQ, head_dim=16, dtype=DTYPE, device=DEVICE
    )
    expected, wrong = plan.run(q, k, v), []

    def work():
        for _ in range(50):
            if not torch.equal(plan.run(q, k, v), expected):
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.skipif(not ON_GPU, reason="streams are a GPU's")
def test_streams():
    q, k, v = (randn(1, 8, 4096, 64, seed=i) for i in range(3))
    plan = stof.plan(
        "causal", batch=1, num_heads=8, seq_q=4096, head_dim=64, dtype=DTYPE, device=DEVICE
    )
    expected = plan.run(q, k, v)
    torch.cuda.synchronize()
    streams, results = [torch.cuda.Stream() for _ in range(3)], []
    for _ in range(10):
        for stream in streams:
            with torch.cuda.stream(stream):
                results.append(plan.run(q, k, v))
        results.append(plan.run(q, k, v, stream=streams[0].cuda_stream))
    torch.cuda.synchronize()
    assert all(torch.equal(result, expected) for result in results)
    assert torch.cuda.current_stream() == torch.cuda.default_stream()


@pytest.mark.skipif(not ON_GPU, reason="streams are a GPU's")
def test_streams_given_by_number_own_copies_and_results():
    q, k, v = (randn(1, 8, 512, 64, seed=i) for i in range(3))
    plan = stof.plan(
        "causal", batch=1, num_heads=8, seq_q=512, head_dim=64, dtype=DTYPE, device=DEVICE
    )
    expected = plan.run(q, k, v)
    strided = [x.transpose(2, 3).contiguous().transpose(2, 3) for x in (q, k, v)]  # are copied
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.cuda._sleep(100_000_000)
    results = [plan.run(*strided, stream=side.cuda_stream) for _ in range(4)]
    # The current stream is given none of the memory that the side stream will use.
    others = [torch.full_like(q, float("nan")) for _ in range(16)]
    side.synchronize()
    assert all(torch.equal(result, expected) for result in results) and len(others) == 16
    assert torch.equal(plan.run(q, k, v, stream=0), expected)
    for wrong in (side, -1, 2**70):
        with pytest.raises(stof.InvalidArgument, match="stream: expected"):
            plan.run(q, k, v, stream=wrong)
    assert torch.cuda.current_stream() == torch.cuda.default_stream()


def test_plans_go_with_the_cache():
    stof.cache_clear()
    q, k, v = qkv()
    for offset in range(8):
        stof.attention(q, k, v, masks.causal(offset))
    assert stof.cache_info().currsize == 8
    stof.cache_clear()
    gc.collect()
    assert stof.cache_info().currsize == 0


@pytest.mark.parametrize(
    "change, error, message",
    [
        (lambda q, k, v: (q.requires_grad_(), k, v), stof.Unsupported, "q: expected .*gradients"),
        (lambda q, k, v: (q.double(), k, v), stof.InvalidArgument, "got float64"),
        (
            lambda q, k, v: (q, k.double(), v),
            stof.InvalidArgument,
            "k: expected dtype .*got float64",
        ),
        (lambda q, k, v: (q, k.cpu().numpy(), v), stof.InvalidArgument, "k: expected .* of torch"),
        (lambda q, k, v: (q, k, v.to_sparse()), stof.InvalidArgument, "v: expected a dense"),
        (lambda q, k, v: (q.transpose(1, 2), k, v), stof.InvalidArgument, "k: expected 77 heads"),
        (lambda q, k, v: (q, k[:, :2], v[:, :2]), stof.InvalidArgument, "enable_gqa=True"),
        (lambda q, k, v: (q, k, 3), stof.InvalidArgument, "v: expected .*got int"),
    ],
)
def test_refuses(change, error, message):
    q, k, v = (x.float().to(DTYPE) if x.dtype != torch.bfloat16 else x for x in qkv())
    with pytest.raises(error, match=message):
        stof.attention(*change(q, k, v), "causal")


@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
def test_nested_tensors_are_refused_by_name(layout):
    q, k, v = qkv()
    rows = [randn(n, 4, 16) for n in (9, 5)]
    nested = torch.nested.nested_tensor(rows, layout=layout).transpose(1, 2)
    mask = masks.causal()
    plan = stof.plan(mask, batch=2, num_heads=4, seq_q=SEQ, head_dim=16, dtype=DTYPE, device=DEVICE)
    for _ in range(2):  # the second time beside calls that are known
        for name, operands in (("q", (nested, k, v)), ("k", (q, nested, v)), ("v", (q, k, nested))):
            for call in (stof.attention, plan.run):
                with pytest.raises(stof.Unsupported, match=f"^{name}: expected .* nested tensor"):
                    call(*operands, *([mask] if call is stof.attention else []))
        with pytest.raises(stof.Unsupported, match="^q: expected .* nested tensor"):
            stof.varlen_attention(nested, nested, nested, [0, 9, 14])
        with pytest.raises(stof.Unsupported, match="^mask: expected .* nested tensor"):
            stof.attention(q, k, v, nested)
        plan.run(q, k, v)
        stof.attention(q, k, v, mask)
    if layout == torch.strided:
        return  # torch.compile takes none
    for refused in (lambda x: stof.attention(x, x, x), lambda x: plan.run(x, x, x)):
        torch._dynamo.reset()
        with pytest.raises(Exception, match=when_compiled("nested tensor")):
            torch.compile(refused, backend="eager", fullgraph=True)(nested)


@pytest.mark.parametrize("convert", [torch.Tensor.to_sparse] + [torch.Tensor.to_mkldnn] * (not ON_GPU))
def test_layouts_are_refused_by_name(convert):
    operands = [x.contiguous() for x in qkv()]
    mask = masks.causal()
    plan = stof.plan(mask, batch=2, num_heads=4, seq_q=SEQ, head_dim=16, dtype=DTYPE, device=DEVICE)
    for _ in range(2):  # the second time beside calls that are known
        for which in ((0, 1, 2), (0,), (1,), (2,)):
            given = [convert(x) if i in which else x for i, x in enumerate(operands)]
            for call in (lambda *x: stof.attention(*x, mask), plan.run):
                with pytest.raises(stof.InvalidArgument, match=f"^{'qkv'[which[0]]}: expected a dense"):
                    call(*given)
        plan.run(*operands)
        stof.attention(*operands, mask)


@pytest.mark.skipif(not ON_GPU, reason="two kinds of memory need a GPU")
def test_mixed_devices_are_refused():
    q, k, v = qkv()
    with pytest.raises(stof.InvalidArgument, match="k: expected memory of cuda:0.*got cpu"):
        stof.attention(q, k.cpu(), v)
    plan = stof.plan("causal", batch=2, num_heads=4, seq_q=SEQ, head_dim=16, dtype=DTYPE)
    with pytest.raises(stof.InvalidArgument, match="q: expected memory of cpu.*got cuda:0"):
        plan.run(q, k, v)
    with pytest.raises(stof.InvalidArgument, match="num_threads: expected 0"):
        stof.plan(
            "causal", batch=2, num_heads=4, seq_q=SEQ, head_dim=16, dtype=DTYPE, device="cuda"
        ).run(q, k, v, num_threads=2)


def test_numpy_and_torch_have_plans_of_their_own():
    q, k, v = (x.float().cpu() for x in qkv())
    out = stof.attention(q, k, v, "causal")
    arrays = stof.attention(q.numpy(), k.numpy(), v.numpy(), "causal")
    assert isinstance(arrays, np.ndarray) and np.array_equal(out.numpy(), arrays)


@pytest.mark.parametrize("name", ["scale", "softcap"])
def test_gradients_of_numbers_are_refused(name):
    q, k, v = (randn(1, 2, 9, 8, seed=s) for s in range(3))
    value = torch.tensor(0.5, requires_grad=True)
    with pytest.raises(stof.Unsupported, match=f"{name}: expected tensors without gradients"):
        stof.attention(q, k, v, **{name: value})
    with torch.no_grad():
        assert torch.equal(
            stof.attention(q, k, v, **{name: value}), stof.attention(q, k, v, **{name: 0.5})
        )


def test_none_is_no_operand():
    k = randn(1, 2, 9, 8, seed=1)
    with pytest.raises(stof.InvalidArgument, match="q: expected a NumPy array, a torch tensor"):
        stof.attention(None, k, k)


@pytest.mark.parametrize("name", ["alibi", "bias", "sink", "position_bias", "score_mod"])
def test_gradients_of_every_operand_are_refused(name):
    q, k, v = (randn(1, 2, 9, 8, seed=s) for s in range(3))
    shapes = dict(alibi=(2,), bias=(9, 9), sink=(2,), position_bias=(8, 2), score_mod=(2,))
    tensor = torch.zeros(shapes[name], device=DEVICE, requires_grad=True)
    value = tensor
    if name == "position_bias":
        value = stof.PositionBias(table=tensor)
    elif name == "score_mod":
        value = stof.ScoreMod("score + t[h]", {"t": tensor})
    with pytest.raises(stof.Unsupported, match="without gradients"):
        stof.attention(q, k, v, "causal", **{name: value})
    with torch.no_grad():
        assert not stof.attention(q, k, v, "causal", **{name: value}).requires_grad
