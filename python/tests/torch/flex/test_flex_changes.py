"""Captured tensors that change in place between calls, and what is kept while they do not."""

import pytest
import torch

from comparing import DEVICE, assert_close
from flexing import pairs, qkv, torch_flex_attention, torch_lists, torch_pairs
from stof.compat.flex import create_block_mask, flex_attention
from zoo import Case, lengths_to_ids, on_device


def test_mask_tables_change():
    ids = lengths_to_ids([20, 30])
    case = Case(lambda b, h, q, kv: ids[q] == ids[kv], None, None, 50, 50)
    block_mask = create_block_mask(*case, device=DEVICE)
    q, k, v = qkv(case)
    for lengths in ([20, 30], [1, 49], [25, 20, 5]):
        ids.copy_(lengths_to_ids(lengths))
        expected, _ = torch_flex_attention(q, k, v, mask_mod=case.mod)
        assert_close(flex_attention(q, k, v, block_mask=block_mask), expected)
        assert torch.equal(pairs(block_mask), torch_pairs(*case))


def test_scalars_change():
    offset = on_device(0)
    case = Case(lambda b, h, q, kv: q + offset >= kv, None, None, 3, 40)
    block_mask = create_block_mask(*case, device=DEVICE)
    for position in (0, 17, 36):
        offset.fill_(position)
        assert torch.equal(pairs(block_mask), torch_pairs(*case))


def test_numbers_change():
    window = 3

    def mod(b, h, q, kv):
        return (q - kv).abs() <= window

    case = Case(mod, None, None, 30, 30)
    block_mask = create_block_mask(*case, device=DEVICE)
    for window in (3, 8, 0):
        assert torch.equal(pairs(block_mask), torch_pairs(*case))


def test_derived_tensors_change():
    lengths = on_device([20, 30])

    def mod(b, h, q, kv):
        ends = lengths.cumsum(0)
        return (kv < ends[0]) == (q < ends[0])

    case = Case(mod, None, None, 50, 50)
    block_mask = create_block_mask(*case, device=DEVICE)
    for first in (20, 5):
        lengths[0] = first
        assert torch.equal(pairs(block_mask), torch_pairs(*case))


def test_members_change():
    tokens = on_device([0, 7, 31])
    case = Case(lambda b, h, q, kv: torch.isin(kv, tokens), None, None, 50, 50)
    block_mask = create_block_mask(*case, device=DEVICE)
    for value in (31, 2, -4):
        tokens[2] = value
        assert torch.equal(pairs(block_mask), torch_pairs(*case))


def test_tensors_of_inference_mode_change():
    with torch.inference_mode():
        ids = lengths_to_ids([20, 30])
        case = Case(lambda b, h, q, kv: ids[q] == ids[kv], None, None, 50, 50)
        block_mask = create_block_mask(*case, device=DEVICE)
        for lengths in ([20, 30], [1, 49]):
            ids.copy_(lengths_to_ids(lengths))
            assert torch.equal(pairs(block_mask), torch_pairs(*case))


def test_plans_are_kept_while_nothing_changes():
    ids = lengths_to_ids([20, 30])
    case = Case(lambda b, h, q, kv: ids[q] == ids[kv], None, None, 50, 50)
    for block_mask in (create_block_mask(*case, device=DEVICE), torch_lists(case.mod, case)):
        q, k, v = qkv(case)
        flex_attention(q, k, v, block_mask=block_mask)
        first = _resolved(block_mask)
        flex_attention(q, k, v, block_mask=block_mask)
        assert _resolved(block_mask) is first
        ids.copy_(ids.clone())  # written, though with the same values
        flex_attention(q, k, v, block_mask=block_mask)
        assert _resolved(block_mask).plans is first.plans
        ids[0] = 7
        flex_attention(q, k, v, block_mask=block_mask)
        assert _resolved(block_mask).plans is not first.plans
        ids[0] = 0


def _resolved(block_mask):
    from stof.compat.flex import attention

    resolver = getattr(block_mask, "resolver", None) or attention._resolvers[block_mask]
    return resolver.current


def test_lists_of_torch_change():
    case = Case(lambda b, h, q, kv: q >= kv, None, None, 64, 64)
    block_mask = torch_lists(case.mod, case, block_size=16)
    before = pairs(block_mask)
    block_mask.kv_num_blocks[0, 0, 3] = 0
    block_mask.full_kv_num_blocks[0, 0, 2] = 1
    after = pairs(block_mask)
    assert torch.equal(after[..., :32, :], before[..., :32, :])
    assert not after[..., 48:, 48:].any() and not after[..., 32:48, 16:32].any()


@pytest.mark.parametrize("dtype", [torch.int16, torch.uint8, torch.int32])
def test_narrow_tables(dtype):
    ids = lengths_to_ids([20, 30]).to(dtype)
    case = Case(lambda b, h, q, kv: ids[q] == ids[kv], None, None, 50, 50)
    assert torch.equal(pairs(create_block_mask(*case, device=DEVICE)), torch_pairs(*case))
