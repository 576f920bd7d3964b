"""What travels as `attention_mask` from a model's mask function to its attention layers."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.attention.flex_attention import BlockMask


#: The element type of rows that stof_mask has joined with the user's sparse mask (0 is hidden).
#: They travel as tensors through graphs and models, which keep no other mark, and must not be taken
#: for masks of the caller's, which nobody has joined: it is a type that masks never have.
JOINED_ROW = torch.uint16


class HostMask(BlockMask):
    """A mask of [batch, 1, q_length, kv_length] without an element per pair.

    transformers' models hand on tensors and BlockMasks as they are, hence the base class;
    nothing of it but `shape` is there. Immutable. A pair is visible where all of these say so:

    - `mask`, a stof.Mask that knows where it stands, or None;
    - `row`, booleans [batch, 1, 1, kv_length], true for keys that may be seen, or None;
    - `also`, the user's sparse mask, but not where a decoder looks at its encoder
    (cross-attention).
    """

    #: Whether it was made while a graph is recorded.
    recorded = False

    def __init__(
        self,
        shape: tuple[int, int, int, int],
        mask: Any = None,
        row: torch.Tensor | None = None,
        also: Any = None,
    ) -> None:
        self.extents = shape
        self.mask = mask
        self.row = row
        self.also = also

    @property
    def shape(self) -> tuple[int, int, int, int]:
        return self.extents

    @property
    def ndim(self) -> int:
        return 4

    def numel(self) -> int:
        batch, heads, q_length, kv_length = self.extents
        return batch * heads * q_length * kv_length

    def to(self, *args: Any, **kwargs: Any) -> "HostMask":
        """Itself: expressions have no device, and a row stays where its model put it."""
        return self

    def __getitem__(self, index: Any) -> Any:
        raise TypeError(
            "attention_mask: stof's mask is no tensor and cannot be sliced; pass the 2-D padding "
            "mask to the model, and other masks through config.stof_mask"
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}(shape={self.extents}, mask={self.mask}, also={self.also})"

    __str__ = __repr__


class RecordedHostMask(HostMask):
    """One made while a graph is recorded: masks are text or names, or numbers known when it runs.

    `mask` is None where `bound` is the number of the mask as a tensor. Both, and `also`, are asked
    at positions that count from q_offset (and `start`, a tensor of one integer) and kv_offset.
    """

    recorded = True

    def __init__(
        self,
        shape: tuple[int, int, int, int],
        mask: str | None,
        bound: torch.Tensor | None,
        row: torch.Tensor | None,
        also: Any,
        q_offset: int,
        start: torch.Tensor | None,
        kv_offset: int,
    ) -> None:
        super().__init__(shape, mask, row, also)
        self.bound = bound
        self.q_offset = q_offset
        self.start = start
        self.kv_offset = kv_offset
