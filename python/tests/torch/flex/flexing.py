"""What the tests of stof.compat.flex share: torch's own results as the oracle."""

import warnings

import torch
from torch.nn.attention import flex_attention as torch_flex

from comparing import DEVICE, DTYPE, randn
from stof.compat.flex import to_stof_mask


def pairs(block_mask, batch=None, heads=None) -> torch.Tensor:
    """What stof sees: bool [batch, heads, q_len, kv_len]."""
    *extents, q_len, kv_len = block_mask.shape
    batch, heads = batch or extents[0], heads or extents[1]
    mask = to_stof_mask(block_mask, batch, heads)
    return torch.from_numpy(mask.to_dense(q_len, kv_len, batch=batch, num_heads=heads))


def torch_pairs(mask_mod, batch, heads, q_len, kv_len) -> torch.Tensor:
    """What torch sees: mask_mod of all pairs by torch.vmap."""
    return torch_flex.create_mask(mask_mod, batch, heads, q_len, kv_len, DEVICE).cpu()


def torch_scores(score_mod, scores: torch.Tensor) -> torch.Tensor:
    """score_mod of all pairs by torch.vmap."""
    from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex

    indices = [torch.arange(extent, device=scores.device) for extent in scores.shape]
    with TransformGetItemToIndex():
        return torch_flex._vmap_for_bhqkv(score_mod, prefix=(0,))(scores, *indices)


def torch_lists(mask_mod, case, block_size=32) -> torch_flex.BlockMask:
    return torch_flex.create_block_mask(
        mask_mod, case.batch, case.heads, case.q_len, case.kv_len, DEVICE, block_size
    )


def torch_flex_attention(query, key, value, score_mod=None, mask_mod=None, **options):
    """torch's eager flex_attention in float32; (out, lse)."""
    shape = (query.shape[0], query.shape[1], query.shape[2], key.shape[2])
    block_mask = None
    if mask_mod is not None:
        block_mask = torch_flex.create_block_mask(mask_mod, *shape, query.device)
    query, key, value = (x.float() for x in (query, key, value))
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch_flex._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG = True
        return torch_flex.flex_attention(
            query, key, value, score_mod, block_mask, return_lse=True, **options
        )


def qkv(case, batch=None, heads=None, heads_kv=None, dim=16, dtype=DTYPE):
    batch, heads = batch or case.batch or 2, heads or case.heads or 2
    heads_kv = heads_kv or heads
    return (
        randn(batch, heads, case.q_len, dim, dtype=dtype, seed=1),
        randn(batch, heads_kv, case.kv_len, dim, dtype=dtype, seed=2),
        randn(batch, heads_kv, case.kv_len, dim, dtype=dtype, seed=3),
    )
