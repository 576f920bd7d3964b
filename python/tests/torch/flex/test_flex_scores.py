"""score_mods of all kinds, alone and with masks, against torch's eager flex_attention."""

import pytest
import torch
from torch.nn.attention import flex_attention as torch_flex

from comparing import DEVICE, DTYPES, ON_GPU, assert_close
from flexing import qkv, torch_flex_attention
from stof import InvalidArgument, Unsupported
from stof.compat.flex import create_block_mask, flex_attention
from mask_zoo import MASKS
from score_zoo import SCORES
from zoo import Case, random


@pytest.mark.parametrize("name", SCORES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_scores(name, dtype):
    case = SCORES[name]()
    q, k, v = qkv(case, dtype=dtype)
    expected, expected_lse = torch_flex_attention(q, k, v, case.mod)
    out, lse = flex_attention(q, k, v, case.mod, return_lse=True)
    assert_close(out, expected, dtype)
    assert_close(lse, expected_lse, dtype)


@pytest.mark.parametrize("name", SCORES)
def test_scores_under_a_mask(name):
    case = SCORES[name]()
    q, k, v = qkv(case)

    def mask_mod(b, h, q, kv):
        return (q >= kv) | (kv % 5 == h)

    expected, _ = torch_flex_attention(q, k, v, case.mod, mask_mod)
    block_mask = create_block_mask(mask_mod, None, q.shape[1], case.q_len, case.kv_len, DEVICE)
    assert_close(flex_attention(q, k, v, case.mod, block_mask), expected)


@pytest.mark.parametrize("mask", ["document", "lookup_per_batch_and_head", "natten_2d"])
def test_masks_under_a_score(mask):
    case = MASKS[mask]()
    q, k, v = qkv(case)
    heads = q.shape[1]
    slopes = torch.exp2(-torch.arange(heads, device=DEVICE).float())

    def alibi(score, b, h, q, kv):
        return score + slopes[h] * (kv - q)

    expected, _ = torch_flex_attention(q, k, v, alibi, case.mod)
    block_mask = create_block_mask(*case, device=DEVICE)
    assert_close(flex_attention(q, k, v, alibi, block_mask), expected)


def test_grouped_heads():
    case = SCORES["alibi"]()
    q, k, v = qkv(case, heads_kv=2)
    expected, _ = torch_flex_attention(q, k, v, case.mod, enable_gqa=True)
    assert_close(flex_attention(q, k, v, case.mod, enable_gqa=True), expected)


def test_scale_comes_first():
    case = SCORES["softcap"]()
    q, k, v = qkv(case)
    expected, _ = torch_flex_attention(q, k, v, case.mod, scale=3.0)
    assert_close(flex_attention(q, k, v, case.mod, scale=3.0), expected)


def test_a_score_mod_that_hides_is_a_mask():
    """Hidden tiles are skipped: the plan's mask has the condition, its score_mod the rest."""
    from stof.compat.flex import attention

    case = SCORES["window_then_cap"]()
    q, k, v = qkv(case)
    attention._everything.plans.clear()
    flex_attention(q, k, v, case.mod)
    (plan,) = attention._everything.plans.all()
    stats = plan.mask.stats(case.q_len)
    assert stats["visible_pairs"] == sum(min(i + 7, 60) - max(i - 6, 0) for i in range(60))


def test_tables_are_read_at_every_call():
    bias = random(30, 30, seed=1)
    factor = torch.tensor(1.0, device=DEVICE)
    number = 0.5

    def mod(score, b, h, q, kv):
        return score * factor + bias[q, kv] * number

    case = Case(mod, None, None, 30, 30)
    q, k, v = qkv(case)
    for step in range(3):
        bias.mul_(-1.5)
        factor.add_(step)
        number += step
        expected, _ = torch_flex_attention(q, k, v, mod)
        assert_close(flex_attention(q, k, v, mod), expected)


def test_plans_are_kept_when_values_change():
    from stof.compat.flex import attention

    bias, factor = random(30, 30, seed=1), torch.tensor(1.0, device=DEVICE)
    case = Case(lambda s, b, h, q, kv: s * factor + bias[q, kv], None, None, 30, 30)
    q, k, v = qkv(case)
    flex_attention(q, k, v, case.mod)
    before = attention._everything.plans.all()
    bias.neg_()
    factor.add_(1)
    flex_attention(q, k, v, case.mod)
    assert attention._everything.plans.all() == before


@pytest.mark.parametrize(
    "make",
    [
        lambda t: t.to(torch.float16),
        lambda t: t.to(torch.bfloat16),
        lambda t: t.to(torch.float64),
        lambda t: (t * 10).to(torch.int8),
        lambda t: (t * 10).to(torch.int64),
        lambda t: t > 0.5,
        lambda t: t.t(),
        lambda t: t[:1].expand(30, -1),
        lambda t: t.flip(0)[:, ::1],
    ],
)
def test_tables_of_all_types_and_strides(make):
    table = make(random(30, 30, seed=2))
    case = Case(lambda s, b, h, q, kv: s + table[q, kv] * 2.0, None, None, 30, 30)
    q, k, v = qkv(case)
    expected, _ = torch_flex_attention(q, k, v, case.mod)
    assert_close(
        flex_attention(q, k, v, case.mod),
        expected,
        table.dtype if table.dtype in (torch.float16, torch.bfloat16) else None,
    )


def test_short_tables_are_refused():
    bias = random(20)
    q, k, v = qkv(Case(None, None, None, 20, 21))
    with pytest.raises(InvalidArgument, match="at least 21 elements in dimension 0"):
        flex_attention(q, k, v, lambda s, b, h, q, kv: s + bias[kv])


def test_gradients_of_tables_are_refused():
    bias = torch.nn.Parameter(random(20))
    q, k, v = qkv(Case(None, None, None, 20, 20))
    mod = lambda s, b, h, q, kv: s + bias[kv]
    with pytest.raises(Unsupported, match="'bias' with requires_grad"):
        flex_attention(q, k, v, mod)
    with torch.no_grad():
        expected, _ = torch_flex_attention(q, k, v, mod)
        assert_close(flex_attention(q, k, v, mod), expected)


if ON_GPU:  # torch compiles its own kernels for GPUs

    @pytest.mark.parametrize("name", ["alibi", "softcap", "relative_bias", "causal_by_inf"])
    def test_scores_of_torchs_kernels(name):
        case = SCORES[name]()
        q, k, v = qkv(case, dim=64)
        expected = torch.compile(torch_flex.flex_attention)(q, k, v, case.mod)
        assert_close(flex_attention(q, k, v, case.mod), expected, factor=2)

    def test_tables_on_the_host_are_refused():
        bias = random(20).cpu()
        q, k, v = qkv(Case(None, None, None, 20, 20))
        with pytest.raises(InvalidArgument, match="'bias' on cuda:0 like query, got it on cpu"):
            flex_attention(q, k, v, lambda s, b, h, q, kv: s + bias[kv])

    def test_cuda_graph_reads_new_values():
        bias = random(33, 33)
        mod = lambda s, b, h, q, kv: s + bias[q, kv]
        q, k, v = qkv(Case(mod, None, None, 33, 33))
        flex_attention(q, k, v, mod)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = flex_attention(q, k, v, mod)
        bias.neg_()
        graph.replay()
        assert_close(out, torch_flex_attention(q, k, v, mod)[0])


@pytest.mark.parametrize(
    "mod",
    [
        lambda s, b, h, q, kv: s * 1e-300,
        lambda s, b, h, q, kv: s * -1e-46,
        lambda s, b, h, q, kv: s / 1e300,
        lambda s, b, h, q, kv: s + q * 1e-300,
        lambda s, b, h, q, kv: s * 1e-46 * 1e30,
        lambda s, b, h, q, kv: torch.where(s > -1e300, s, 0.0),
        lambda s, b, h, q, kv: torch.where(q * 1e-300 > 0, 0.0, s),
        lambda s, b, h, q, kv: s * 1e300,
        lambda s, b, h, q, kv: s + 1e39,
    ],
)
def test_numbers_that_float32_does_not_hold(mod):
    """Rounded to it, to 0 or infinity, as torch computes with them."""
    q, k, v = qkv(Case(mod, None, None, 20, 20))
    assert_close(flex_attention(q, k, v, mod), torch_flex_attention(q, k, v, mod)[0])
