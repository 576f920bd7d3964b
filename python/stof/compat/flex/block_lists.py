"""Block lists of torch's BlockMask as masks."""

from __future__ import annotations

from typing import Any

import torch

from ... import masks
from ...errors import InvalidArgument
from ...mask import Mask
from .tables import refuse_in_capture, state_of


def lists_of(block_mask: Any) -> tuple[torch.Tensor | None, ...]:
    """(counts, ids) of the blocks where mask_mod decides, and of the full ones or None."""
    return (
        block_mask.kv_num_blocks,
        block_mask.kv_indices,
        block_mask.full_kv_num_blocks,
        block_mask.full_kv_indices,
    )


def state_of_lists(block_mask: Any) -> tuple[Any, ...]:
    return tuple(None if x is None else state_of(x) for x in lists_of(block_mask))


def _listed(
    counts: torch.Tensor, ids: torch.Tensor, num_rows: int, num_cols: int, name: str
) -> Any:
    """Sets of block columns [B or 1][H or 1][num_rows]."""
    refuse_in_capture(counts.device)
    counts, ids = counts.cpu(), ids.cpu()
    while counts.dim() < 3:
        counts, ids = counts.unsqueeze(0), ids.unsqueeze(0)
    if counts.shape[2] < num_rows:
        raise InvalidArgument(
            f"block_mask: expected {num_rows} rows of blocks for these queries, got "
            f"{name}_num_blocks of shape {list(counts.shape)}"
        )
    lists = []
    for entry_counts, entry_ids in zip(counts.tolist(), ids.tolist()):
        lists.append([])
        for head_counts, head_ids in zip(entry_counts, entry_ids):
            rows = []
            for row in range(num_rows):
                listed = set(head_ids[row][: head_counts[row]])
                outside = [block for block in listed if not 0 <= block < num_cols]
                if outside or head_counts[row] > len(head_ids[row]):
                    raise InvalidArgument(
                        f"block_mask: expected block columns 0 to {num_cols - 1} in "
                        f"{name}_indices, got {outside or head_counts[row]} in row {row}"
                    )
                rows.append(sorted(listed))
            lists[-1].append(rows)
    return lists


def _mask_of(lists: Any, num_cols: int, block_size: tuple[int, int]) -> Mask:
    rows = [row for entry in lists for head in entry for row in head]
    if all(len(row) == num_cols for row in rows):
        return masks.all()
    if not any(rows):
        return masks.none()
    entries = [
        masks.blocks(entry, block_q=block_size[0], block_kv=block_size[1]) for entry in lists
    ]
    return entries[0] if len(entries) == 1 else masks.per_batch(entries)


def combine(block_mask: Any, predicate: Mask, q_len: int, kv_len: int) -> Mask:
    """What torch's kernels see: full blocks, and in the other listed blocks what mask_mod gives."""
    block_q, block_kv = block_size = tuple(block_mask.BLOCK_SIZE)
    num_rows, num_cols = -(-q_len // block_q), -(-kv_len // block_kv)
    counts, ids, full_counts, full_ids = lists_of(block_mask)
    partial = _mask_of(_listed(counts, ids, num_rows, num_cols, "kv"), num_cols, block_size)
    mask = partial & predicate
    if full_counts is None:
        return mask
    full = _listed(full_counts, full_ids, num_rows, num_cols, "full_kv")
    return mask | _mask_of(full, num_cols, block_size)
