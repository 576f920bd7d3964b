"""Masks that have no expression: evaluated for every pair of positions, some rows at a time."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from .failures import reason, source_place
from .tables import state_of

# Pairs evaluated at once. A mask_mod makes some temporaries of 8 bytes a pair: 32 MiB each.
_CHUNK_PAIRS = 1 << 22

# Uses of an index that do not depend on its value: functions, and attributes that are read.
_VALUE_FREE = frozenset(
    "new_zeros new_ones new_full new_empty new_tensor zeros_like ones_like full_like size dim".split()
)
_VALUE_FREE_ATTRIBUTES = frozenset(
    "device dtype shape ndim layout is_cuda is_cpu is_sparse requires_grad grad names".split()
)


def _reads_value(func: Any) -> bool:
    """Whether what a torch function does with a tensor may depend on its elements."""
    name = getattr(func, "__name__", "")
    if name == "__get__":
        return (
            getattr(getattr(func, "__self__", None), "__name__", "") not in _VALUE_FREE_ATTRIBUTES
        )
    return name not in _VALUE_FREE


class _Watch(TorchFunctionMode):
    """Notes the tensors that a function reads, and whether it reads its batch entry or head."""

    def __init__(self) -> None:
        super().__init__()
        self.b = self.h = None  # as the function sees them
        self.uses_b = self.uses_h = False
        self.captured: dict[int, torch.Tensor] = {}
        self._made: dict[int, torch.Tensor] = {}  # held, so that their ids stay theirs

    def _note(self, value: Any, counts: bool) -> None:
        if isinstance(value, torch.Tensor):
            if value is self.b:
                self.uses_b |= counts
            elif value is self.h:
                self.uses_h |= counts
            elif id(
                value
            ) not in self._made and not torch._C._functorch.is_functorch_wrapped_tensor(value):
                self.captured[id(value)] = value
        elif isinstance(value, (tuple, list)):
            for item in value:
                self._note(item, counts)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        counts = _reads_value(func)
        self._note(args, counts)
        self._note(list(kwargs.values()), counts)
        result = func(*args, **kwargs)
        for made in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(made, torch.Tensor):
                self._made[id(made)] = made
        return result


@dataclasses.dataclass
class Evaluated:
    """What was read while some rows were evaluated."""

    visible: torch.Tensor  # bool [rows, KV_LEN]
    uses_b: bool
    uses_h: bool
    captured: list[torch.Tensor]


def over_pairs(function: Any, num_leading: int = 0) -> Any:
    """A function of single indices (b, h, q, k), for vectors of them: results [B, H, Q, K].
    Arguments before the indices have all four dimensions."""
    # Batch entry and head are mapped too, so that no branch can look at one of them alone.
    mapped = function
    for place in (3, 2, 1, 0):
        indices = (0 if i == place else None for i in range(4))
        mapped = torch.vmap(mapped, in_dims=(*(0 for _ in range(num_leading)), *indices))
    return mapped


def as_result(result: Any, device: Any) -> Any:
    """What a function gave for one pair; torch.vmap takes tensors alone, and constants are none."""
    if isinstance(result, (bool, int, float)):
        return torch.tensor(result, device=device)
    if not isinstance(result, torch.Tensor):
        raise TypeError(f"the result is a {type(result).__name__}; expected one number")
    return result


def check_visible(visible: Any, shape: tuple[int, ...]) -> None:
    """What a mask_mod gave for all pairs of a shape [B, H, Q, K]."""
    if visible.dtype != torch.bool or visible.shape != shape:
        raise TypeError(
            f"the result is {visible.dtype} of shape {tuple(visible.shape[4:])} for one pair; "
            "expected torch.bool of shape ()"
        )


def evaluate_rows(
    mask_mod: Any, b: int, h: int, rows: range, kv_len: int, device: Any
) -> Evaluated:
    """mask_mod at (b, h, rows, all keys), as torch's create_mask evaluates it."""
    from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex

    b_index = torch.tensor([b], device=device)
    h_index = torch.tensor([h], device=device)
    q = torch.arange(rows.start, rows.stop, device=device)
    k = torch.arange(kv_len, device=device)
    watch = _Watch()

    def watched(*indices: Any) -> Any:
        watch.b, watch.h = indices[:2]
        with watch:
            return as_result(mask_mod(*indices), device)

    with TransformGetItemToIndex(), torch.no_grad():
        visible = over_pairs(watched)(b_index, h_index, q, k)
    check_visible(visible, (1, 1, len(rows), kv_len))
    return Evaluated(visible[0, 0], watch.uses_b, watch.uses_h, list(watch.captured.values()))


def row_chunks(q_len: int, kv_len: int, multiple: int = 1) -> Iterator[range]:
    """Ranges of rows of about _CHUNK_PAIRS pairs; all but the last a multiple of `multiple`."""
    step = max(1, _CHUNK_PAIRS // max(kv_len, 1) // multiple) * multiple
    for begin in range(0, q_len, step):
        yield range(begin, min(begin + step, q_len))


@dataclasses.dataclass
class DenseMask:
    """All pairs of a mask_mod, and what they depend on."""

    visible: torch.Tensor  # bool [B or 1, H or 1, Q_LEN, KV_LEN] in host memory
    captured: list[tuple[Any, ...]]  # (tensor, its state)

    def is_current(self) -> bool:
        return all(state_of(tensor) == state for tensor, state in self.captured)


def evaluate(
    mask_mod: Any, batch: int, heads: int, q_len: int, kv_len: int, device: Any
) -> DenseMask:
    """Evaluates mask_mod for all pairs; entries and heads that it does not look at once only.

    Device memory: a few arrays of _CHUNK_PAIRS elements. Host memory: the result's.
    """
    captured: dict[int, torch.Tensor] = {}

    def fill(b: Any, h: Any, target: Any) -> Any:
        uses_b = uses_h = False
        for rows in row_chunks(q_len, kv_len):
            part = evaluate_rows(mask_mod, b, h, rows, kv_len, device)
            target[rows.start : rows.stop] = part.visible.cpu()
            captured.update((id(tensor), tensor) for tensor in part.captured)
            uses_b |= part.uses_b
            uses_h |= part.uses_h
        return uses_b, uses_h

    first = torch.empty(1, 1, q_len, kv_len, dtype=torch.bool)
    uses_b, uses_h = fill(0, 0, first[0, 0])
    # What a scripted function reads is not seen: some rows of every entry and head must agree.
    others = [(b, 0) for b in range(1, batch)] + [(0, h) for h in range(1, heads)]
    rows = range(min(q_len, max(1, _CHUNK_PAIRS // max(kv_len, 1) // max(len(others), 1))))
    for b, h in others:
        if (b and uses_b) or (h and uses_h) or not rows:
            continue
        part = evaluate_rows(mask_mod, b, h, rows, kv_len, device)
        differs = not torch.equal(part.visible.cpu(), first[0, 0, : len(rows)])
        uses_b |= differs and b > 0
        uses_h |= differs and h > 0
    extents = (batch if uses_b else 1, heads if uses_h else 1)
    visible = first
    if extents != (1, 1):
        visible = torch.empty(*extents, q_len, kv_len, dtype=torch.bool)
        visible[0, 0] = first[0, 0]
        for b in range(extents[0]):
            for h in range(extents[1]):
                if (b, h) != (0, 0):
                    fill(b, h, visible[b, h])
    return DenseMask(visible, [(tensor, state_of(tensor)) for tensor in captured.values()])


#: What a function that is evaluated may do, by its name among flex_attention's arguments.
_USABLE = {
    "mask_mod": "its four arguments that give one boolean: comparisons, arithmetic, &, |, ~,",
    "score_mod": "its five arguments that give one number: arithmetic, torch's functions,",
}


#: What torch.vmap says at length, and what of it concerns the user.
_OF_VMAP = {
    "data-dependent control flow": "it cannot branch on a tensor",
    "calling .item()": "it takes no number out of a tensor",
    "Cannot access data pointer": "it hands no tensor to NumPy",
    "called random operation": "it draws no random numbers, and random masks are refused: stof.masks "
    "has seeded ones",
}


def _of_vmap(error: BaseException) -> str:
    for said, meant in _OF_VMAP.items():
        if said in str(error):
            return meant
    return reason(error)


def explain_failure(error: BaseException, why: str, function: Any, name: str = "mask_mod") -> str:
    """The message where neither the trace, for the reason `why`, nor the evaluation works; without
    a reason it could be traced, but has to be evaluated."""
    kind = f"{name} {getattr(function, '__name__', function)!r}"
    start = f"{kind} can neither be traced ({why}) nor be" if why else f"{kind} cannot be"
    how = (
        f"Write it with tensor operations on {_USABLE[name]} torch.where, and indexing of captured "
        "tensors"
    )
    if isinstance(error, IndexError):
        how = "Make the captured tensor larger, or clamp the index"
    return (
        f"{start} evaluated with torch.vmap ({_of_vmap(error)}; at {source_place(error, function)}). "
        f"{how}"
    )
