"""From a mask_mod to a stof mask, again whenever what the mask_mod reads has changed."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from ... import masks
from ...errors import InvalidArgument, StofError
from ...latest import Latest
from ...mask import Mask
from .captured import captured_values
from .evaluation import DenseMask, Evaluated, evaluate, evaluate_rows, explain_failure
from .failures import reason, source_place, warn_user
from .index_bounds import bounds_of_index
from .tables import Memo, refuse_in_capture
from .tracing import Traced, trace_mask

# Plans of one mask that are kept: shapes it is used with.
_MAX_PLANS = 32


@dataclasses.dataclass(frozen=True)
class Shape:
    """Extents of the scores."""

    batch: int
    heads: int
    q_len: int
    kv_len: int


class Plans(Latest[Any]):
    """The plans of one mask, by shape and options."""

    def __init__(self) -> None:
        super().__init__(_MAX_PLANS)


@dataclasses.dataclass(frozen=True)
class Resolved:
    """A mask, what it was made of, and its plans."""

    key: tuple[Any, ...]
    mask: Mask
    traced: Traced | None
    dense: DenseMask | None
    plans: Plans


_COUNTED = {"b": "batch entries", "h": "query heads", "q": "queries", "k": "keys"}


def check_extents(traced: Traced, shape: Shape, function: str) -> None:
    """Tables that an index runs past: torch raises there or reads what lies behind."""
    for table, dimension, index, extent in traced.extents:
        bounds = bounds_of_index(index, *dataclasses.astuple(shape))
        if bounds is None or -extent <= bounds[0] and bounds[1] < extent:
            continue
        least, greatest = bounds
        place = f"dimension {dimension} of the captured tensor {table!r}"
        if index in _COUNTED:
            raise InvalidArgument(
                f"{function}: expected at least {greatest + 1} elements in {place}, which is indexed "
                f"with {_COUNTED[index]}, got {extent}"
            )
        raise InvalidArgument(
            f"{function}: expected an index from {-extent} to {extent - 1} in {place}, got {index}, "
            f"which runs from {least} to {greatest}; make the tensor larger, or clamp the index"
        )


def predicate(traced: Traced) -> Mask:
    """A traced mask_mod as a mask; tables are copied."""
    tables = {}
    for name, tensor in traced.tables.items():
        refuse_in_capture(tensor.device)
        host = tensor.detach().cpu()
        tables[name] = host if host.dtype == torch.bool else host.to(torch.int64)
    return masks.predicate(traced.text, **tables)


class Resolver:
    """The mask of one mask_mod on one device, kept until something that it reads changes."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.memo = Memo()
        self.current: Resolved | None = None

    def __reduce__(self) -> Any:
        """Copies, pickled ones too, start anew: plans and what was read belong to this one."""
        return Resolver, (self.device,)

    def try_trace(self, mask_mod: Any) -> tuple[Traced | None, str]:
        """The trace, or None and why there is none."""
        try:
            return trace_mask(mask_mod, self.device, self.memo), ""
        except StofError:
            raise
        except Exception as error:  # whatever the user's function raises when given symbols
            return None, f"{reason(error)}; at {source_place(error, mask_mod)}"

    def probe(self, mask_mod: Any, q_len: int, kv_len: int) -> None:
        """Warns where mask_mod has no expression; raises where it cannot be evaluated either."""
        traced, why = self.try_trace(mask_mod)
        if traced is None:
            self._evaluated(
                mask_mod,
                why,
                lambda: evaluate_rows(mask_mod, 0, 0, range(min(q_len, 1)), kv_len, self.device),
            )
            warn_user(_slow(mask_mod, why, q_len, kv_len))

    def resolve(
        self,
        mask_mod: Any,
        shape: Shape,
        extra_key: tuple[Any, ...] = (),
        finish: Any = None,
        warn: bool = False,
    ) -> Resolved:
        """The mask now. `finish` makes the final mask of mask_mod's, and depends on extra_key."""
        traced, why = self.try_trace(mask_mod)
        dense = None
        if traced is not None:
            key = (traced.key(), extra_key)
        else:
            key = (captured_values(mask_mod), shape, extra_key)
        current = self.current
        if (
            current is None
            or current.key != key
            or (current.dense is not None and not current.dense.is_current())
        ):
            if traced is not None:
                mask = predicate(traced)
            else:
                refuse_in_capture(self.device)
                dense = self._evaluated(
                    mask_mod,
                    why,
                    lambda: evaluate(
                        mask_mod, shape.batch, shape.heads, shape.q_len, shape.kv_len, self.device
                    ),
                )
                if warn or current is not None:
                    warn_user(_slow(mask_mod, why, shape.q_len, shape.kv_len))
                mask = masks.dense(dense.visible)
                dense.visible = None  # the mask has it as bits
            if finish is not None:
                mask = finish(mask)
            # A function that makes its tables anew in every call gives an equal mask.
            same = current is not None and current.mask == mask
            plans = current.plans if same else Plans()
            current = self.current = Resolved(key, mask, traced, dense, plans)
        if traced is not None:
            check_extents(traced, shape, "mask_mod")
        return current

    def rows(self, mask_mod: Any, b: int, h: int, rows: range, kv_len: int) -> Evaluated:
        """Some rows of all pairs, for those who want them although there is an expression."""
        return self._evaluated(
            mask_mod, "", lambda: evaluate_rows(mask_mod, b, h, rows, kv_len, self.device)
        )

    def _evaluated(self, mask_mod: Any, why: str, evaluation: Any) -> Any:
        try:
            return evaluation()
        except StofError:
            raise
        except Exception as error:  # likewise
            raise InvalidArgument(explain_failure(error, why, mask_mod)) from error


def _slow(mask_mod: Any, why: str, q_len: int, kv_len: int) -> str:
    name = getattr(mask_mod, "__name__", repr(mask_mod))
    return (
        f"mask_mod {name!r} cannot be traced: {why}. It is evaluated for all {q_len} x {kv_len} "
        "pairs instead: the result is the same, at the price of that time and memory"
    )
