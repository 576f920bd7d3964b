"""Element types of symbols: conversions, promotion, and new constants.

Handlers are found by the name of the torch function or tensor method. One gets the trace and the
caller's arguments, and has exactly the parameters that it honours: any other is a TypeError, which
ends the trace.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from .failures import CannotTrace
from .integers import bounds, fitted, limits, typed
from .symbols import ATOM, COMPARISON, KIND_OF_DTYPE, Symbol

if TYPE_CHECKING:
    from .tracing import Trace

_Handler = TypeVar("_Handler", bound="Callable[..., Symbol]")

HANDLERS: dict[str, Callable[..., Symbol]] = {}


def handles(*names: str) -> Callable[[_Handler], _Handler]:
    def register(function: _Handler) -> _Handler:
        for name in names:
            HANDLERS[name] = function
        return function

    return register


# --- conversions -----------------------------------------------------------------------------


def as_int(trace: Trace, x: Any) -> Symbol:
    """A number of a boolean or integer."""
    if x.kind == "bool":
        if x.value is not None:
            return trace.constant(int(x.value))
        number = trace.node(f"where({x.text}, 1, 0)", ATOM, "int")
        return typed(trace, number, torch.bool, (0, 1))  # promoted as a boolean is
    return x


def as_bool(trace: Trace, x: Any) -> Symbol:
    if x.kind == "bool":
        return x
    if x.value is not None:
        return trace.constant(bool(x.value))
    zero = "0" if x.kind == "int" else "0.0"
    return trace.node(f"{x.inside(COMPARISON + 1)} != {zero}", COMPARISON, "bool")


def as_float(trace: Trace, x: Any) -> Symbol:
    if x.kind == "float":
        return x
    if x.value is not None:
        return trace.constant(float(x.value))
    return trace.node(f"float({x.text})", ATOM, "float")


#: Up to where all integers are numbers of the type.
_EXACT_INTEGERS = {torch.float16: 1 << 11, torch.bfloat16: 1 << 8}


def as_narrow_float(trace: Trace, x: Any, dtype: Any) -> Symbol:
    """Expressions compute in float32, so this is for what needs no rounding, and for constants."""
    if x.value is not None:
        return trace.constant(float(torch.tensor(float(x.value)).to(dtype)))
    if x.kind != "float":
        number = as_int(trace, x)
        least, greatest = bounds(number)
        if -_EXACT_INTEGERS[dtype] <= least and greatest <= _EXACT_INTEGERS[dtype]:
            return as_float(trace, number)
    raise CannotTrace(
        f"conversion to {dtype}, which rounds; expressions compute in float32, so convert to "
        "torch.float32, or leave the conversion out"
    )


def convert(trace: Trace, x: Any, dtype: Any) -> Symbol:
    if x.int_dtype == dtype and dtype is not None:
        return x  # itself, as in torch: what is written to one is written to both
    if dtype == torch.bool:
        return as_bool(trace, x)
    if x.kind != "float" and KIND_OF_DTYPE.get(dtype) == "int":
        x = as_int(trace, x)
        return fitted(trace, x, dtype, bounds(x))
    if dtype in (torch.int32, torch.int64):
        if x.value is not None and math.isfinite(x.value):
            return trace.constant(int(x.value), dtype)
        return typed(trace, trace.node(f"int({x.text})", ATOM, "int"), dtype, limits(dtype))
    if dtype == torch.float32:
        return as_float(trace, x)
    if dtype in _EXACT_INTEGERS:
        return as_narrow_float(trace, x, dtype)
    raise CannotTrace(f"conversion to {dtype}: expressions have bool, 64-bit integers and float32")


def common(trace: Trace, a: Any, b: Any) -> Any:
    """Both as numbers of one kind: torch's promotion."""
    if "float" in (a.kind, b.kind):
        return as_float(trace, a), as_float(trace, b)
    return as_int(trace, a), as_int(trace, b)


# --- handlers ---------------------------------------------------------------------


@handles("to", "type")
def to(
    trace: Trace,
    x: Any,
    *targets: Any,
    dtype: Any = None,
    device: Any = None,
    non_blocking: Any = False,
    copy: Any = False,
) -> Symbol:
    (x,) = trace.operands(x)
    for target in (*targets, dtype):
        if hasattr(target, "dtype"):
            target = target.dtype  # .to(other)
        if isinstance(target, torch.dtype):
            x = convert(trace, x, target)
        elif not (target is None or isinstance(target, (str, int, torch.device))):
            raise CannotTrace(f"conversion to {target!r}")
    return x


@handles("type_as")
def type_as(trace: Trace, x: Any, other: Any) -> Symbol:
    return to(trace, x, other)


for _name, _dtype in {
    "float": torch.float32,
    "half": torch.float16,
    "bfloat16": torch.bfloat16,
    "int": torch.int32,
    "long": torch.int64,
    "bool": torch.bool,
    "double": torch.float64,
    "short": torch.int16,
}.items():

    @handles(_name)
    def _convert_to(trace: Trace, x: Any, dtype: Any = _dtype) -> Symbol:
        return convert(trace, trace.operands(x)[0], dtype)


def filled(trace: Trace, like: Any, size: Any, value: Any, dtype: Any) -> Symbol:
    if size is not None and tuple(size) != ():
        raise CannotTrace(f"a new tensor of shape {tuple(size)}; only () has an expression")
    if dtype is None:
        dtype = trace.operands(like)[0].dtype
    if dtype not in KIND_OF_DTYPE:
        raise CannotTrace(f"a new tensor of {dtype}")
    (value,) = trace.operands(value)
    return convert(trace, value, dtype)


@handles("new_zeros")
def new_zeros(
    trace: Trace, like: Any, size: Any, *, dtype: Any = None, device: Any = None
) -> Symbol:
    return filled(trace, like, size, 0, dtype)


@handles("new_ones")
def new_ones(
    trace: Trace, like: Any, size: Any, *, dtype: Any = None, device: Any = None
) -> Symbol:
    return filled(trace, like, size, 1, dtype)


@handles("new_full")
def new_full(
    trace: Trace, like: Any, size: Any, fill_value: Any, *, dtype: Any = None, device: Any = None
) -> Symbol:
    return filled(trace, like, size, fill_value, dtype)


@handles("new_tensor")
def new_tensor(
    trace: Trace, like: Any, data: Any, *, dtype: Any = None, device: Any = None
) -> Symbol:
    return filled(trace, like, None, data, dtype)


@handles("zeros_like")
def zeros_like(trace: Trace, like: Any, *, dtype: Any = None, device: Any = None) -> Symbol:
    return filled(trace, like, None, 0, dtype)


@handles("ones_like")
def ones_like(trace: Trace, like: Any, *, dtype: Any = None, device: Any = None) -> Symbol:
    return filled(trace, like, None, 1, dtype)


@handles("full_like")
def full_like(
    trace: Trace, like: Any, fill_value: Any, *, dtype: Any = None, device: Any = None
) -> Symbol:
    return filled(trace, like, None, fill_value, dtype)


@handles("tensor", "as_tensor", "scalar_tensor")
def tensor(trace: Trace, data: Any, *, dtype: Any = None, device: Any = None) -> Symbol:
    (x,) = trace.operands(data)
    if dtype is None and x.kind != "int":
        return x
    return convert(trace, x, x.dtype if dtype is None else dtype)


@handles("zeros")
def zeros(trace: Trace, size: Any, *, dtype: Any = torch.float32, device: Any = None) -> Symbol:
    return filled(trace, None, size, 0, dtype)


@handles("ones")
def ones(trace: Trace, size: Any, *, dtype: Any = torch.float32, device: Any = None) -> Symbol:
    return filled(trace, None, size, 1, dtype)


@handles("full")
def full(
    trace: Trace, size: Any, fill_value: Any, *, dtype: Any = None, device: Any = None
) -> Symbol:
    (x,) = trace.operands(fill_value)
    return filled(trace, x, size, x, dtype)
