"""score_mods: their traces, and the tensors that they read."""

from __future__ import annotations

import types
import weakref
from typing import Any

import torch

from ...errors import InvalidArgument, StofError, Unsupported
from ...latest import Latest
from .block_mask import check_mod
from .failures import reason, source_place
from .resolving import Shape, check_extents
from .tables import Memo, as_table_dtype, keep_if_recorded, refuse_in_capture, state_of
from .tracing import Traced, trace_score

# What was read while a function was traced, for its next trace, as long as the function exists: by
# the id of the function, because callable objects need not have a hash. A lambda made anew in every
# call starts with what the last of the same code needed.
_memos: dict[Any, tuple[Any, Memo]] = {}
_memo_of_code: weakref.WeakKeyDictionary[Any, Memo] = weakref.WeakKeyDictionary()


def _memo(score_mod: Any) -> Memo:
    function, owner = score_mod, score_mod
    if isinstance(score_mod, types.MethodType):  # made anew whenever it is asked for
        function, owner = score_mod.__func__, score_mod.__self__
    key = (id(owner), id(function))
    entry = _memos.get(key)
    if entry is not None and entry[0]() is owner:
        return entry[1]
    code = getattr(function, "__code__", None)
    before = None if code is None else _memo_of_code.get(code)
    memo = Memo() if before is None else before.copy()
    if code is not None:
        _memo_of_code[code] = memo
    try:
        _memos[key] = (weakref.ref(owner, lambda _: _memos.pop(key, None)), memo)
    except TypeError:
        pass  # an object without weak references (with __slots__) is read in every call
    return memo


def trace(score_mod: Any, shape: Shape, device: torch.device) -> tuple[Traced | None, str]:
    """The trace, or None and why there is none."""
    check_mod(score_mod, "score_mod", 5)
    try:
        traced = trace_score(score_mod, device, _memo(score_mod))
    except StofError:
        raise
    except Exception as error:  # whatever the user's function raises when given symbols
        return None, f"{reason(error)}; at {source_place(error, score_mod)}"
    check_extents(traced, shape, "score_mod")
    return traced, ""


# Scalars of the host that score_mods use on a GPU: copied when they change, not in every
# call. Found by the user's tensor: its copy in a table's element type would be new in every call.
_MAX_SCALARS = 64
_scalars: Latest[tuple[torch.Tensor, torch.Tensor]] = Latest(_MAX_SCALARS)


def _scalar_on(device: torch.device, scalar: torch.Tensor) -> torch.Tensor:
    def copied() -> tuple[torch.Tensor, torch.Tensor]:
        refuse_in_capture(device, "score_mod")
        return scalar, as_table_dtype(scalar).to(device)

    return keep_if_recorded(_scalars.get((state_of(scalar), device), copied), device)[1]


def operand(name: str, table: torch.Tensor, device: torch.device) -> torch.Tensor:
    if table.requires_grad and torch.is_grad_enabled():
        raise Unsupported(
            "score_mod: expected captured tensors without gradients because stof computes no "
            f"backward pass, got {name!r} with requires_grad; call under torch.no_grad(), or "
            "detach it"
        )
    if table.device == device:
        return as_table_dtype(table.detach())
    if table.numel() == 1:
        return _scalar_on(device, table.detach())
    raise InvalidArgument(
        f"score_mod: expected the captured tensor {name!r} on {device} like query, got it on "
        f"{table.device}"
    )
