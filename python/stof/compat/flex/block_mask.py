"""create_block_mask(): torch's BlockMask with the mask's formula in place of its block lists."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.attention import flex_attention as torch_flex

from ...errors import InvalidArgument
from .evaluation import row_chunks
from .resolving import Resolver
from .tracing import count_positional

TorchBlockMask = torch_flex.BlockMask

# What torch's BlockMask keeps as plain attributes. The lists are made here when first asked for;
# writing one, or another mask_mod, makes them count as they do in torch.
_LISTS = (
    "kv_num_blocks",
    "kv_indices",
    "full_kv_num_blocks",
    "full_kv_indices",
    "q_num_blocks",
    "q_indices",
    "full_q_num_blocks",
    "full_q_indices",
)
_ATTRIBUTES = frozenset((*_LISTS, "BLOCK_SIZE", "mask_mod", "seq_lengths"))


class FormulaBlockMask(TorchBlockMask):
    """A BlockMask known by its mask_mod: flex_attention of stof needs no block lists.

    Anything that asks for the lists (printing, slicing, sparsity(), torch's own flex_attention)
    gets torch's, made at that moment from all pairs, some rows at a time. Slicing gives torch's
    BlockMask, whose lists count.
    """

    def __init__(
        self,
        mask_mod: Any,
        batch: int,
        heads: int,
        q_len: int,
        kv_len: int,
        device: torch.device,
        block_size: tuple[int, int],
    ) -> None:
        self.__dict__.update(
            mask_mod=mask_mod,
            seq_lengths=(q_len, kv_len),
            BLOCK_SIZE=block_size,
            formula_shape=(batch, heads, q_len, kv_len),
            formula_device=device,
            resolver=Resolver(device),
        )

    @property
    def shape(self) -> Any:
        return self.formula_shape

    def numel(self) -> Any:
        batch, heads, q_len, kv_len = self.formula_shape
        return batch * heads * q_len * kv_len

    def to(self, device: Any) -> FormulaBlockMask:
        return FormulaBlockMask(
            self.mask_mod, *self.formula_shape, _device(device), self.BLOCK_SIZE
        )

    def _adjust(self, new_q_len: int, new_kv_len: int) -> FormulaBlockMask:
        """The same mask_mod at other lengths, exact where torch's rounds up to whole blocks."""
        batch, heads, _, _ = self.formula_shape
        return FormulaBlockMask(
            self.mask_mod, batch, heads, new_q_len, new_kv_len, self.formula_device, self.BLOCK_SIZE
        )

    def __getattr__(self, name: str) -> Any:
        if name not in _LISTS:
            raise AttributeError(f"BlockMask has no attribute {name!r}")
        self._make_lists()
        return self.__dict__[name]

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _ATTRIBUTES:
            # From here on it is torch's: its lists and a mask_mod that need not agree with them.
            self._make_lists()
            for own in ("formula_shape", "formula_device", "resolver"):
                del self.__dict__[own]
            self.__class__ = TorchBlockMask
        object.__setattr__(self, name, value)

    def _make_lists(self) -> None:
        if "kv_num_blocks" in self.__dict__:
            return
        batch, heads, q_len, kv_len = self.formula_shape
        block_q, block_kv = self.BLOCK_SIZE
        num_rows, num_cols = -(-q_len // block_q), -(-kv_len // block_kv)
        seen = torch.zeros(
            batch, heads, num_rows, num_cols, dtype=torch.int64, device=self.formula_device
        )
        for b in range(batch):
            for h in range(heads):
                for rows in row_chunks(q_len, kv_len, block_q):
                    part = self.resolver.rows(self.mask_mod, b, h, rows, kv_len)
                    padding = (0, num_cols * block_kv - kv_len, 0, -len(rows) % block_q)
                    tiles = torch.nn.functional.pad(part.visible, padding)
                    tiles = tiles.unflatten(1, (num_cols, block_kv)).unflatten(0, (-1, block_q))
                    begin = rows.start // block_q
                    seen[b, h, begin : begin + tiles.shape[0]] = tiles.sum(dim=(1, 3))
        full = seen == block_q * block_kv
        lists = [*_ordered((seen > 0) & ~full), *_ordered(full)]
        made = TorchBlockMask.from_kv_blocks(
            *lists,
            BLOCK_SIZE=self.BLOCK_SIZE,
            mask_mod=self.mask_mod,
        )
        self.__dict__.update({name: getattr(made, name) for name in _LISTS})


def block_mask_device(block_mask: TorchBlockMask) -> torch.device:
    if isinstance(block_mask, FormulaBlockMask):
        return block_mask.formula_device
    return block_mask.kv_num_blocks.device


def _ordered(listed: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Counts [..., rows] and the listed columns first, ascending, [..., rows, columns]."""
    counts = listed.sum(dim=-1).to(torch.int32)
    ids = torch.argsort(listed.to(torch.int8), dim=-1, descending=True, stable=True)
    return counts, ids.to(torch.int32)


def _device(given: Any) -> torch.device:
    try:
        return torch.device(given)
    except (RuntimeError, TypeError):
        raise InvalidArgument(
            f"device: expected a torch.device or its name, got {given!r}"
        ) from None


def _default_device() -> torch.device:
    """torch's: the accelerator of this machine, else the CPU."""
    if torch.cuda.is_available():
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")


def check_mod(function: Any, name: str, expected: int) -> None:
    if not callable(function):
        raise InvalidArgument(f"{name}: expected a function, got {type(function).__name__}")
    try:
        count = count_positional(function)
    except (TypeError, ValueError):
        return  # no signature; the call will show
    signature = "(b, h, q_idx, kv_idx)" if expected == 4 else "(score, b, h, q_idx, kv_idx)"
    if count not in (None, expected):
        raise InvalidArgument(
            f"{name}: expected a function of {signature}, got one of {count} arguments"
        )


def _length(value: Any, name: str, least: int) -> int:
    try:
        length = value.__index__()
    except (AttributeError, TypeError):
        raise InvalidArgument(f"{name}: expected a whole number, got {value!r}") from None
    if length < least:
        raise InvalidArgument(f"{name}: expected at least {least}, got {length}")
    return length


def create_block_mask(
    mask_mod: Any,
    B: int | None,
    H: int | None,
    Q_LEN: int,
    KV_LEN: int,
    device: Any = None,
    BLOCK_SIZE: int | tuple[int, int] = 128,
    _compile: bool = False,
) -> TorchBlockMask:
    """torch's create_block_mask, without evaluating mask_mod for every pair.

    mask_mod(b, h, q_idx, kv_idx) -> bool is called once with symbols and becomes an expression
    (docs/python.md lists what it may do). Where that fails a TraceWarning says why and where, and
    flex_attention evaluates it for all pairs. Tensors that it captures may change in place between
    calls of flex_attention, which then sees the new mask.

    B, H: batch entries and query heads that the mask tells apart, None for one mask for all.
    Q_LEN, KV_LEN: lengths. device: where mask_mod is evaluated if it has to be, by default the GPU
    if there is one. BLOCK_SIZE: of the block lists, for those who read them; kernels of stof choose
    their own tiles. _compile: without effect because nothing is compiled per mask.

    Raises InvalidArgument naming the argument, or saying why mask_mod can neither be traced nor
    evaluated.
    """
    check_mod(mask_mod, "mask_mod", 4)
    batch = 1 if B is None else _length(B, "B", 1)
    heads = 1 if H is None else _length(H, "H", 1)
    q_len, kv_len = _length(Q_LEN, "Q_LEN", 0), _length(KV_LEN, "KV_LEN", 0)
    sides = BLOCK_SIZE if isinstance(BLOCK_SIZE, (tuple, list)) else (BLOCK_SIZE, BLOCK_SIZE)
    if len(sides) != 2:
        raise InvalidArgument(f"BLOCK_SIZE: expected one or two sizes, got {BLOCK_SIZE!r}")
    block_size = tuple(_length(side, "BLOCK_SIZE", 1) for side in sides)
    where = _default_device() if device is None else _device(device)
    made = FormulaBlockMask(mask_mod, batch, heads, q_len, kv_len, where, block_size)
    made.resolver.probe(mask_mod, q_len, kv_len)
    return made
