"""Integers narrower than 64 bits: torch computes them modulo 2^bits, expressions with 64 bits.

A result that may leave its type is brought back by arithmetic in the expression. To know where that
is not needed, symbols carry bounds of their values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from .failures import CannotTrace
from .symbols import AND, SUM, Symbol

if TYPE_CHECKING:
    from .tracing import Trace

NARROW = (torch.uint8, torch.int8, torch.int16, torch.int32)


def limits(dtype: Any) -> tuple[int, int]:
    if dtype == torch.bool:
        return 0, 1
    info = torch.iinfo(dtype)
    return info.min, info.max


def bounds(x: Symbol) -> tuple[int, int]:
    """Of an integer's values."""
    if x.value is not None:
        return int(x.value), int(x.value)
    return x.bounds or limits(x.dtype)


def result_dtype(*xs: Symbol) -> Any:
    """torch's promotion of integers and booleans, in which a number of Python has no type."""
    dtype = None
    for x in xs:
        if not x.is_number:
            dtype = x.dtype if dtype is None else torch.promote_types(dtype, x.dtype)
    if dtype is None or dtype == torch.bool:
        return torch.int64
    return dtype


def check_numbers(dtype: Any, *xs: Symbol) -> None:
    """Numbers of Python that torch would bend to the type of the tensor beside them."""
    low, high = limits(dtype)
    for x in xs:
        if x.is_number and not low <= x.value <= high:
            raise CannotTrace(
                f"{x.value} beside a tensor of {dtype}, which does not hold it; convert the tensor "
                "with .long()"
            )


def typed(trace: Trace, x: Symbol, dtype: Any, within: Any = None) -> Symbol:
    """The same integer, whose values that type holds, as one of it."""
    if x.value is not None:
        return trace.constant(int(x.value), dtype)
    return Symbol(trace, x.text, x.binds, "int", None, x.parts, dtype, within or bounds(x))


def fitted(trace: Trace, x: Symbol, dtype: Any, within: Any = None) -> Symbol:
    """An integer computed with 64 bits as torch has it in that type. `within`: its bounds."""
    low, high = limits(dtype)
    span = high - low + 1
    if x.value is not None:
        return trace.constant((int(x.value) - low) % span + low, dtype)
    least, most = within or bounds(x)
    if low <= least and most <= high:
        return typed(trace, x, dtype, (least, most))
    if dtype not in NARROW:  # expressions wrap as int64 does
        return typed(trace, x, dtype, (low, high))
    if low == 0:
        text, binds = f"{x.inside(AND)} & {high}", AND
    else:
        shifted = trace.node(f"{x.inside(SUM)} + {-low}", SUM, "int")
        text, binds = f"({shifted.inside(AND)} & {span - 1}) - {-low}", SUM
    return Symbol(trace, trace.node(text, binds, "int").text, binds, "int", None, None, dtype, None)


def widened(trace: Trace, x: Symbol) -> Symbol:
    return typed(trace, x, torch.int64)


def infix_bounds(sign: str, a: Symbol, b: Symbol, dtype: Any) -> tuple[int, int] | None:
    """Of a + b and the like before anything wraps; None where nothing is known. `dtype`: torch's
    type of the result, which holds what & | ^ % >> make of values that it holds."""
    (a_low, a_high), (b_low, b_high) = bounds(a), bounds(b)
    if sign == "+":
        return a_low + b_low, a_high + b_high
    if sign == "-":
        return a_low - b_high, a_high - b_low
    if sign == "<<" and 0 <= b_low and b_high < 64:
        sign, b_low, b_high = "*", 1 << b_low, 1 << b_high
    if sign == "*":
        return _hull(x * y for x in (a_low, a_high) for y in (b_low, b_high))
    if sign == "//" and b_low >= 0:
        divisors = max(b_low, 1), max(b_high, 1)
        return _hull((0, *(x // y for x in (a_low, a_high) for y in divisors)))
    if sign == "//":
        most = max(-a_low, a_high)
        return -most, most
    if sign == "%" and b_low > 0:
        return 0, b_high - 1
    low, high = limits(dtype)
    if sign != "<<" and low <= min(a_low, b_low) and max(a_high, b_high) <= high:
        return low, high
    return None


def _hull(values: Any) -> tuple[int, int]:
    values = tuple(values)
    return min(values), max(values)
