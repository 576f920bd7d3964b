"""torch's own BlockMask: block lists that are narrower than mask_mod, slices, ragged ends."""

import inspect

import pytest
import torch
from torch.nn.attention import flex_attention as torch_flex

from comparing import DEVICE, assert_close, randn, reference
from flexing import pairs, qkv, torch_lists, torch_pairs
from stof import InvalidArgument
from stof.compat.flex import BlockMask, create_block_mask, flex_attention, noop_mask
from mask_zoo import MASKS
from zoo import Case, causal_mod, on_device

MARKS_SLICES = hasattr(torch_flex, "_sliced_mask_mod_error")
CHECKS_LISTS = "compute_q_blocks" not in inspect.signature(BlockMask.from_kv_blocks).parameters


def seen_by_kernels(block_mask, case) -> torch.Tensor:
    """Block by block in plain loops: full blocks entirely, listed ones by mask_mod."""
    batch, heads = block_mask.kv_num_blocks.shape[:2]
    block_q, block_kv = block_mask.BLOCK_SIZE
    by_mod = torch_pairs(block_mask.mask_mod, batch, heads, case.q_len, case.kv_len)
    seen = torch.zeros(batch, heads, case.q_len, case.kv_len, dtype=torch.bool)
    lists = [(block_mask.kv_num_blocks, block_mask.kv_indices, by_mod)]
    if block_mask.full_kv_num_blocks is not None:
        full = torch.ones_like(seen)
        lists.append((block_mask.full_kv_num_blocks, block_mask.full_kv_indices, full))
    for counts, ids, source in lists:
        for b in range(batch):
            for h in range(heads):
                for row in range(-(-case.q_len // block_q)):
                    for block in ids[b, h, row, : counts[b, h, row]].tolist():
                        tile = (
                            b,
                            h,
                            slice(row * block_q, (row + 1) * block_q),
                            slice(block * block_kv, (block + 1) * block_kv),
                        )
                        seen[tile] |= source[tile]
    return seen


def check(block_mask, case):
    expected = seen_by_kernels(block_mask, case)
    assert torch.equal(pairs(block_mask), expected)
    q, k, v = qkv(case, batch=expected.shape[0], heads=expected.shape[1])
    out, lse = flex_attention(q, k, v, block_mask=block_mask, return_lse=True)
    expected_out, expected_lse = reference(q, k, v, expected)
    assert_close(out, expected_out)
    assert_close(lse, expected_lse)


def int32(values):
    return on_device(values, torch.int32)


def test_lists_without_mask_mod():
    """CASES 13: every kernel honours the lists."""
    lists = int32([[[[0, 2, 1, 3], [1, 3, 0, 2], [0, 3, 1, 2], [2, 3, 0, 1]]]])
    block_mask = BlockMask.from_kv_blocks(int32([[[2, 2, 2, 2]]]), lists, BLOCK_SIZE=16)
    assert block_mask.mask_mod is noop_mask
    check(block_mask, Case(noop_mask, 1, 1, 64, 64))


def test_lists_narrower_than_mask_mod():
    lists = int32([[[[0, 1, 2], [1, 0, 2], [2, 1, 0]]]])
    full = int32([[[[2, 0, 1], [0, 2, 1], [1, 0, 2]]]])
    block_mask = BlockMask.from_kv_blocks(
        int32([[[1, 1, 2]]]), lists, int32([[[0, 1, 1]]]), full, BLOCK_SIZE=16, mask_mod=causal_mod
    )
    check(block_mask, Case(causal_mod, 1, 1, 48, 48))


def test_full_blocks_are_visible_where_mask_mod_is_not():
    lists, full = int32([[[[0, 1], [0, 1]]]]), int32([[[[1, 0], [0, 1]]]])
    block_mask = BlockMask.from_kv_blocks(
        int32([[[1, 0]]]), lists, int32([[[1, 0]]]), full, BLOCK_SIZE=16, mask_mod=causal_mod
    )
    check(block_mask, Case(causal_mod, 1, 1, 32, 32))


def test_lists_per_batch_and_head():
    generator = torch.Generator().manual_seed(1)
    listed = torch.rand(2, 3, 4, 5, generator=generator) > 0.5
    ids = torch.argsort(listed.int(), dim=-1, descending=True, stable=True)
    block_mask = BlockMask.from_kv_blocks(
        listed.sum(-1).int().to(DEVICE),
        ids.int().to(DEVICE),
        BLOCK_SIZE=(16, 8),
        mask_mod=lambda b, h, q, kv: (q + kv + b + h) % 3 > 0,
        seq_lengths=(61, 37),
    )
    check(block_mask, Case(None, 2, 3, 61, 37))


@pytest.mark.parametrize("lengths", [(65, 65), (1, 129), (127, 40), (16, 16)])
def test_ragged_ends(lengths):
    case = Case(lambda b, h, q, kv: (q - kv) % 5 != 1, None, None, *lengths)
    block_mask = torch_lists(case.mod, case, block_size=16)
    assert torch.equal(pairs(block_mask), torch_pairs(*case))
    check(block_mask, case)


def test_slice_of_a_query_block():
    """As decoding does it: one block of queries, mask_mod shifted to where they stand."""
    case = MASKS["sliding"]()
    for whole in (
        create_block_mask(*case, device=DEVICE, BLOCK_SIZE=16),
        torch_lists(case.mod, case, block_size=16),
    ):
        sliced = whole[:, :, 4 if MARKS_SLICES else slice(4, 5)]
        q, k, v = qkv(case)
        # Older ones leave no mark on what they slice, but its lists do not fit.
        said = "slicing a BlockMask drops its own" if MARKS_SLICES else "expected 9 rows of blocks"
        with pytest.raises(InvalidArgument, match=said):
            flex_attention(q, k, v, block_mask=sliced)
        position = on_device(70)
        sliced.mask_mod = lambda b, h, q, kv: case.mod(b, h, q + position, kv)
        sliced.seq_lengths = (1, case.kv_len)
        expected = torch_pairs(*case)[:, :, 70:71]
        assert torch.equal(pairs(sliced), expected)
        out = flex_attention(q[:, :, 70:71], k, v, block_mask=sliced)
        assert_close(out, reference(q[:, :, 70:71], k, v, expected)[0])


def test_slices_of_batch_entries_and_heads():
    case = MASKS["lookup_per_batch_and_head"]()
    whole = create_block_mask(*case, device=DEVICE, BLOCK_SIZE=16)
    sliced = whole[1:2, 2:3]
    sliced.mask_mod = lambda b, h, q, kv: case.mod(b + 1, h + 2, q, kv)
    assert torch.equal(pairs(sliced), torch_pairs(*case)[1:2, 2:3])


def test_adjusting():
    ours = create_block_mask(causal_mod, None, None, 100, 100, device=DEVICE)._adjust(40, 70)
    assert torch.equal(pairs(ours), torch_pairs(causal_mod, None, None, 40, 70))
    theirs = torch_flex.create_block_mask(causal_mod, None, None, 64, 64, DEVICE, 16)
    assert torch.equal(pairs(theirs._adjust(32, 48)), torch_pairs(causal_mod, None, None, 32, 48))


def test_another_mask_mod_is_joined_with_the_lists():
    """As in torch, the lists stay those of the old one."""
    case = Case(causal_mod, None, None, 64, 64)
    for block_mask in (
        create_block_mask(*case, device=DEVICE, BLOCK_SIZE=16),
        torch_lists(case.mod, case, block_size=16),
    ):
        block_mask.mask_mod = lambda b, h, q, kv: q - kv == 7
        check(block_mask, case)


def test_moving_keeps_the_formula():
    block_mask = create_block_mask(causal_mod, None, None, 30, 30, device=DEVICE)
    moved = block_mask.to("cpu")
    assert type(moved) is type(block_mask)
    assert torch.equal(pairs(moved), pairs(block_mask))


def test_no_block_mask_in_torchs_form():
    q, k, v = (randn(2, 2, 20, 16, seed=i) for i in range(3))
    nothing = torch_flex._create_empty_block_mask(q, k)
    expected = reference(q, k, v, torch.ones(20, 20, dtype=torch.bool))[0]
    assert_close(flex_attention(q, k, v, block_mask=nothing), expected)


@pytest.mark.skipif(CHECKS_LISTS, reason="this torch raises when it is given such lists")
@pytest.mark.parametrize(
    "counts, ids, message",
    [
        ([[[1, 1]]], [[[[0, 1], [5, 1]]]], "block columns 0 to 1 in kv_indices, got [5] in row 1"),
        ([[[1, 3]]], [[[[0, 1], [0, 1]]]], "in row 1"),
        ([[[1]]], [[[[0, 1]]]], "expected 2 rows of blocks"),
    ],
)
def test_wrong_lists(counts, ids, message):
    block_mask = BlockMask.from_kv_blocks(
        int32(counts), int32(ids), BLOCK_SIZE=16, seq_lengths=(32, 32), compute_q_blocks=False
    )
    with pytest.raises(InvalidArgument) as caught:
        pairs(block_mask)
    assert message in str(caught.value)
