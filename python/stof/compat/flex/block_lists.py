"""Block lists of torch's BlockMask as masks."""

from __future__ import annotations

import weakref
from typing import Any

import torch

from ... import masks
from ...errors import InvalidArgument
from ...mask import Mask
from .tables import keep_if_recorded, refuse_in_capture, state_of


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


def _map_of(lists: Any, num_cols: int, device: torch.device) -> torch.Tensor:
    """Whether a block is listed, bool [B or 1, H or 1, rows of blocks, columns]."""
    listed = torch.zeros(len(lists), len(lists[0]), len(lists[0][0]), num_cols, dtype=torch.bool)
    for b, entry in enumerate(lists):
        for h, head in enumerate(entry):
            for row, columns in enumerate(head):
                listed[b, h, row, columns] = True
    return listed.to(device)


class BlockMaps:
    """The listed blocks of a BlockMask, for code that looks at single pairs."""

    def __init__(self, block_mask: Any, q_len: int, kv_len: int, device: torch.device) -> None:
        self._sides = tuple(block_mask.BLOCK_SIZE)
        block_q, block_kv = self._sides
        num_rows, num_cols = -(-q_len // block_q), -(-kv_len // block_kv)
        counts, ids, full_counts, full_ids = lists_of(block_mask)
        listed = _listed(counts, ids, num_rows, num_cols, "kv")
        self._partial = _map_of(listed, num_cols, device)
        self._full = None
        if full_counts is not None:
            listed = _listed(full_counts, full_ids, num_rows, num_cols, "full_kv")
            self._full = _map_of(listed, num_cols, device)

    def combine(self, visible: torch.Tensor, b: Any, h: Any, q: Any, k: Any) -> torch.Tensor:
        """What torch's kernels see of pairs that a mask_mod gave [b, h, q, k]; see combine()."""
        visible = visible & self._pairs(self._partial, b, h, q, k)
        return visible if self._full is None else visible | self._pairs(self._full, b, h, q, k)

    def _pairs(self, blocks: torch.Tensor, b: Any, h: Any, q: Any, k: Any) -> torch.Tensor:
        for dimension, chosen in ((0, b), (1, h)):
            if blocks.shape[dimension] > 1:
                blocks = blocks.index_select(dimension, chosen)
        block_q, block_kv = self._sides
        return blocks.index_select(2, q // block_q).index_select(3, k // block_kv)


_maps: weakref.WeakKeyDictionary[Any, tuple[Any, BlockMaps]] = weakref.WeakKeyDictionary()


def block_maps(block_mask: Any, q_len: int, kv_len: int, device: torch.device) -> BlockMaps:
    """Kept until the lists change: to read them, a GPU is waited for."""
    key = (state_of_lists(block_mask), tuple(block_mask.BLOCK_SIZE), q_len, kv_len, device)
    entry = _maps.get(block_mask)
    if entry is None or entry[0] != key:
        refuse_in_capture(device)
        entry = _maps[block_mask] = (key, BlockMaps(block_mask, q_len, kv_len, device))
    return keep_if_recorded(entry, device)[1]
