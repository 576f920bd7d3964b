"""Arguments and results of flex_attention and create_block_mask: torch's conventions, and errors
that say what to do."""

import pytest
import torch
from torch.nn.attention import flex_attention as torch_flex

from comparing import DEVICE, ON_GPU, assert_close, randn, reference
from flexing import pairs, qkv, torch_flex_attention, torch_pairs
from stof import InvalidArgument, Unsupported
from stof.compat import flex
from stof.compat.flex import create_block_mask, flex_attention
from mask_zoo import MASKS
from zoo import Case, causal_mod, on_device


def causal_mask(case):
    return create_block_mask(causal_mod, None, None, case.q_len, case.kv_len, device=DEVICE)


CASE = Case(causal_mod, None, None, 33, 33)
HAS_AUX = hasattr(torch_flex, "AuxRequest")


def test_everything_torch_exports_is_here():
    names = ["BlockMask", "and_masks", "or_masks", "noop_mask"]
    for name in names + (["AuxOutput", "AuxRequest"] if HAS_AUX else []):
        assert getattr(flex, name) is getattr(torch_flex, name)
    assert set(flex.__all__) >= {"create_block_mask", "create_mask", "flex_attention"}


def test_returns():
    q, k, v = qkv(CASE)
    expected, expected_lse = torch_flex_attention(q, k, v, mask_mod=causal_mod)
    block_mask = causal_mask(CASE)
    assert_close(flex_attention(q, k, v, block_mask=block_mask), expected)
    out, lse = flex_attention(q, k, v, None, block_mask, None, False, True)
    assert_close(out, expected)
    assert_close(lse, expected_lse)


@pytest.mark.skipif(not HAS_AUX, reason="this torch has no AuxRequest")
def test_return_aux():
    q, k, v = qkv(CASE)
    _, expected_lse = torch_flex_attention(q, k, v, mask_mod=causal_mod)
    block_mask = causal_mask(CASE)
    out, aux = flex_attention(q, k, v, block_mask=block_mask, return_aux=flex.AuxRequest(lse=True))
    assert isinstance(aux, torch_flex.AuxOutput) and aux.max_scores is None
    assert_close(aux.lse, expected_lse)
    _, aux = flex_attention(q, k, v, block_mask=block_mask, return_aux=flex.AuxRequest())
    assert aux.lse is None


def test_no_mask_and_options():
    q, k, v = qkv(CASE)
    expected, _ = torch_flex_attention(q, k, v, scale=0.7)
    options = {"BLOCK_M": 64, "PRESCALE_QK": True}
    assert_close(flex_attention(q, k, v, scale=0.7, kernel_options=options), expected)


@pytest.mark.parametrize("device", ["cpu", DEVICE])
def test_scale_as_a_tensor_may_change(device):
    q, k, v = qkv(CASE)
    block_mask = causal_mask(CASE)
    scale = torch.tensor(0.1, device=device)
    for value in (0.1, 1.0):
        scale.fill_(value)
        expected, _ = torch_flex_attention(q, k, v, mask_mod=causal_mod, scale=scale.item())
        assert_close(flex_attention(q, k, v, block_mask=block_mask, scale=scale), expected)


@pytest.mark.parametrize("heads_kv", [1, 2, 3])
def test_grouped_heads(heads_kv):
    case = MASKS["head_dependent"]()._replace(heads=6)
    q, k, v = qkv(case, heads_kv=heads_kv)
    expected, _ = torch_flex_attention(q, k, v, mask_mod=case.mod, enable_gqa=True)
    block_mask = create_block_mask(*case, device=DEVICE)
    assert_close(flex_attention(q, k, v, block_mask=block_mask, enable_gqa=True), expected)


@pytest.mark.parametrize("batch, heads", [(None, None), (1, 1), (2, None), (None, 3), (2, 3)])
def test_extents_of_one_serve_all(batch, heads):
    case = Case(lambda b, h, q, kv: (q - kv) % 3 != 1, batch, heads, 21, 40)
    block_mask = create_block_mask(*case, device=DEVICE)
    assert block_mask.shape == (batch or 1, heads or 1, 21, 40)
    q, k, v = qkv(case, batch=2, heads=3)
    expected, _ = torch_flex_attention(q, k, v, mask_mod=case.mod)
    assert_close(flex_attention(q, k, v, block_mask=block_mask), expected)


def test_rows_that_see_nothing():
    case = Case(lambda b, h, q, kv: (q >= 20) & (kv < 5), None, None, 40, 40)
    q, k, v = qkv(case)
    block_mask = create_block_mask(*case, device=DEVICE)
    out, lse = flex_attention(q, k, v, block_mask=block_mask, return_lse=True)
    assert not out[:, :, :20].any() and torch.isneginf(lse[:, :, :20]).all()
    expected, expected_lse = torch_flex_attention(q, k, v, mask_mod=case.mod)
    assert_close(out, expected)
    assert_close(lse, expected_lse)


@pytest.mark.parametrize("q_len, kv_len", [(1, 1), (1, 77), (129, 3), (1025, 1025), (200, 137)])
def test_odd_lengths(q_len, kv_len):
    case = Case(lambda b, h, q, kv: (q >= kv) | (kv % 7 == 0), None, None, q_len, kv_len)
    q, k, v = qkv(case, batch=1)
    expected, _ = torch_flex_attention(q, k, v, mask_mod=case.mod)
    assert_close(
        flex_attention(q, k, v, block_mask=create_block_mask(*case, device=DEVICE)), expected
    )


def test_one_batch_entry_of_keys_for_all_queries():
    case = MASKS["prefix_lm"]()
    q = randn(3, 2, case.q_len, 16, seed=1)
    k, v = (randn(1, 2, case.kv_len, 16, seed=i) for i in (2, 3))
    block_mask = create_block_mask(*case, device=DEVICE)
    out = flex_attention(q, k, v, block_mask=block_mask)
    expected = reference(q, k.expand(3, -1, -1, -1), v.expand(3, -1, -1, -1), torch_pairs(*case))[0]
    assert_close(out, expected)
    with pytest.raises(InvalidArgument, match="key: expected batch 3"):
        flex_attention(q, k, v)


def test_strided_operands():
    q, k, v = (randn(2, 33, 4, 48, seed=i).transpose(1, 2)[..., 16:32] for i in range(3))
    expected, _ = torch_flex_attention(q, k, v, mask_mod=causal_mod)
    assert_close(flex_attention(q, k, v, block_mask=causal_mask(CASE)), expected)


def test_autocast():
    q, k, v = qkv(CASE, dtype=torch.float32)
    with torch.autocast(DEVICE, torch.bfloat16):
        out = flex_attention(q, k, v, block_mask=causal_mask(CASE))
    assert out.dtype == torch.bfloat16
    expected, _ = torch_flex_attention(q, k, v, mask_mod=causal_mod)
    assert_close(out, expected, torch.bfloat16)


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_torch_compile(backend):
    """Users of torch's flex_attention wrap it so. Our part is run as it is."""
    torch._dynamo.reset()
    q, k, v = qkv(CASE)
    block_mask = causal_mask(CASE)
    expected, _ = torch_flex_attention(q * 2, k, v, mask_mod=causal_mod)
    assert_close(
        torch.compile(flex_attention, backend=backend)(q * 2, k, v, block_mask=block_mask), expected
    )
    inside = torch.compile(
        lambda q, k, v: flex_attention(q * 2, k, v, block_mask=block_mask) + 1, backend=backend
    )
    assert_close(inside(q, k, v), expected + 1)
    made = torch.compile(create_block_mask, backend=backend)(*CASE, device=DEVICE)
    assert torch.equal(pairs(made), torch_pairs(*CASE))


def test_inference_mode():
    with torch.inference_mode():
        q, k, v = qkv(CASE)
        out = flex_attention(q, k, v, block_mask=causal_mask(CASE))
    assert_close(out, torch_flex_attention(q.clone(), k, v, mask_mod=causal_mod)[0])


def test_gradients_are_refused():
    q, k, v = qkv(CASE)
    with pytest.raises(Unsupported, match="grad"):
        flex_attention(q.requires_grad_(), k, v, block_mask=causal_mask(CASE))
    with torch.no_grad():
        flex_attention(q, k, v, block_mask=causal_mask(CASE))


@pytest.mark.parametrize("name", ["enable_gqa", "return_lse"])
def test_flags_are_flags(name):
    """Known calls too: 1 == True."""
    q, k, v = qkv(CASE)
    for _ in range(2):
        with pytest.raises(InvalidArgument, match=f"{name}: expected True or False, got 1"):
            flex_attention(q, k, v, **{name: 1})
        flex_attention(q, k, v, **{name: True})


if ON_GPU:

    def test_cuda_graph():
        q, k, v = qkv(CASE)
        ids = on_device([0] * 20 + [1] * 13)
        mod = lambda b, h, q, kv: ids[q] == ids[kv]
        block_mask = create_block_mask(mod, None, None, 33, 33, device=DEVICE)
        flex_attention(q, k, v, block_mask=block_mask)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = flex_attention(q, k, v, block_mask=block_mask)
        q.copy_(q.flip(0))
        graph.replay()
        assert_close(out, torch_flex_attention(q, k, v, mask_mod=mod)[0])
        ids[0] = 1
        with pytest.raises(InvalidArgument, match="before capturing"):
            with torch.cuda.graph(torch.cuda.CUDAGraph()):
                flex_attention(q, k, v, block_mask=block_mask)


# --- errors ----------------------------------------------------------------------------------


def refused(match, error=InvalidArgument, **changes):
    q, k, v = qkv(CASE)
    arguments = {"query": q, "key": k, "value": v, "block_mask": causal_mask(CASE), **changes}
    with pytest.raises(error, match=match):
        flex_attention(**arguments)


def test_wrong_arguments_of_flex_attention():
    refused(
        r"query: expected a tensor \[batch, heads, seq, head_dim\], got \[2, 33, 16\]",
        query=randn(2, 33, 16),
    )
    refused(
        "key: expected 2 heads like query, got 1; pass enable_gqa=True", key=randn(2, 1, 33, 16)
    )
    refused("divides the query's 2, got 3", key=randn(2, 3, 33, 16), enable_gqa=True)
    refused("one for 33 queries and 20 keys", key=randn(2, 2, 20, 16), value=randn(2, 2, 20, 16))
    refused("block_mask: expected what create_block_mask", block_mask=torch.ones(33, 33))
    refused(
        "expected 2 batch entries like query, or 1 for all, got 3",
        block_mask=create_block_mask(causal_mod, 3, None, 33, 33, device=DEVICE),
    )
    refused(
        "expected 2 heads like query, or 1 for all, got 4",
        block_mask=create_block_mask(causal_mod, None, 4, 33, 33, device=DEVICE),
    )
    refused("dtype", key=randn(2, 2, 33, 16, dtype=torch.float64))
    if HAS_AUX:
        refused(
            "return_aux: expected None because return_lse is set",
            return_lse=True,
            return_aux=flex.AuxRequest(lse=True),
        )
        refused("got max_scores", Unsupported, return_aux=flex.AuxRequest(max_scores=True))
    refused(
        r"score_mod: expected a function of \(score, b, h, q_idx, kv_idx\), got one of 4",
        score_mod=causal_mod,
    )
    refused("score_mod: expected a function, got int", score_mod=3)
    refused("scale: expected a number, got 'half'", scale="half")
    refused(r"scale: expected a number, got \[2\]", scale=torch.ones(2))
    refused(
        "scale: expected a number or a tensor without gradients",
        Unsupported,
        scale=torch.tensor(0.5, requires_grad=True),
    )


@pytest.mark.parametrize(
    "arguments, message",
    [
        ((3, None, None, 8, 8), "mask_mod: expected a function, got int"),
        ((lambda s, b, h, q, k: s, None, None, 8, 8), "got one of 5 arguments"),
        ((causal_mod, 0, None, 8, 8), "B: expected at least 1, got 0"),
        ((causal_mod, None, 1.5, 8, 8), "H: expected a whole number, got 1.5"),
        ((causal_mod, None, None, -1, 8), "Q_LEN: expected at least 0, got -1"),
        ((causal_mod, None, None, 8, 8, DEVICE, 0), "BLOCK_SIZE: expected at least 1, got 0"),
        ((causal_mod, None, None, 8, 8, DEVICE, (1, 2, 3)), "BLOCK_SIZE: expected one or two"),
    ],
)
def test_wrong_arguments_of_create_block_mask(arguments, message):
    with pytest.raises(InvalidArgument) as caught:
        create_block_mask(*arguments)
    assert message in str(caught.value)


def test_short_tables_are_refused():
    """torch raises, or reads what lies behind."""
    ids = on_device([0, 0, 1])
    mask = create_block_mask(lambda b, h, q, kv: ids[q] == ids[kv], None, None, 4, 3, device=DEVICE)
    with pytest.raises(InvalidArgument) as caught:
        pairs(mask)
    assert "at least 4 elements in dimension 0 of the captured tensor 'ids'" in str(caught.value)
