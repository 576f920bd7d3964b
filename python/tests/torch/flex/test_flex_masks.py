"""mask_mods of all kinds: the same pairs as torch.vmap finds, and the same attention."""

import warnings

import pytest
import torch
from torch.nn.attention import flex_attention as torch_flex

from comparing import DEVICE, DTYPES, ON_GPU, assert_close
from flexing import pairs, qkv, torch_flex_attention, torch_lists, torch_pairs
from stof.compat.flex import TraceWarning, create_block_mask, flex_attention
from mask_zoo import MASKS


def traced(case):
    """Every mask of the zoo has an expression."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", TraceWarning)
        return create_block_mask(*case, device=DEVICE)


@pytest.mark.parametrize("name", MASKS)
def test_pairs_are_those_of_vmap(name):
    case = MASKS[name]()
    expected = torch_pairs(*case)
    assert torch.equal(pairs(traced(case)), expected)


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_attention(name, dtype):
    case = MASKS[name]()
    q, k, v = qkv(case, dtype=dtype)
    expected, expected_lse = torch_flex_attention(q, k, v, mask_mod=case.mod)
    out, lse = flex_attention(q, k, v, block_mask=traced(case), return_lse=True)
    assert out.dtype == dtype and lse.dtype == torch.float32
    assert_close(out, expected, dtype)
    assert_close(lse, expected_lse, dtype)


@pytest.mark.parametrize("name", MASKS)
def test_attention_of_torchs_other_function(name):
    """scaled_dot_product_attention with an array of all pairs."""
    case = MASKS[name]()
    q, k, v = qkv(case)
    visible = torch_pairs(*case).to(DEVICE)
    with torch.no_grad():
        expected = torch.nn.functional.scaled_dot_product_attention(
            *(x.float() for x in (q, k, v)), attn_mask=visible
        )
    expected = expected.masked_fill(~visible.any(-1, keepdim=True), 0.0)  # NaN in some versions
    assert_close(flex_attention(q, k, v, block_mask=traced(case)), expected)


@pytest.mark.parametrize("name", MASKS)
def test_block_mask_of_torch(name):
    case = MASKS[name]()
    block_mask = torch_lists(case.mod, case)
    assert torch.equal(pairs(block_mask), torch_pairs(*case))
    q, k, v = qkv(case)
    expected, _ = torch_flex_attention(q, k, v, mask_mod=case.mod)
    assert_close(flex_attention(q, k, v, block_mask=block_mask), expected)


@pytest.mark.parametrize("name", ["sliding", "paged", "head_choice", "prefix_lm", "lookup"])
@pytest.mark.parametrize("block_size", [16, (32, 64)])
def test_lists_are_those_of_torch(name, block_size):
    case = MASKS[name]()
    ours = create_block_mask(*case, device=DEVICE, BLOCK_SIZE=block_size)
    theirs = torch_flex.create_block_mask(*case, device=DEVICE, BLOCK_SIZE=block_size)
    assert isinstance(ours, torch_flex.BlockMask)
    assert ours.shape == theirs.shape and ours.BLOCK_SIZE == theirs.BLOCK_SIZE
    assert torch.equal(ours.to_dense(), theirs.to_dense())
    assert ours.sparsity() == theirs.sparsity()
    for attribute in ("kv_num_blocks", "full_kv_num_blocks", "q_num_blocks", "kv_indices"):
        assert torch.equal(getattr(ours, attribute), getattr(theirs, attribute)), attribute
    q, k, v = qkv(case)
    expected, _ = torch_flex_attention(q, k, v, mask_mod=case.mod)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        given_to_torch = torch_flex.flex_attention(q, k, v, block_mask=ours)
    assert_close(given_to_torch, expected)


if ON_GPU:  # torch compiles its own kernels for GPUs

    @pytest.mark.parametrize("name", ["sliding", "document", "natten_2d"])
    def test_attention_of_torchs_kernels(name):
        case = MASKS[name]()
        q, k, v = qkv(case, dim=64)
        block_mask = torch_lists(case.mod, case, block_size=128)
        expected = torch.compile(torch_flex.flex_attention)(q, k, v, block_mask=block_mask)
        assert_close(flex_attention(q, k, v, block_mask=traced(case)), expected, factor=2)
