"""What torch's functions and tensors' methods do to symbols: handlers as in conversions.py."""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, Any

import torch

from .conversions import as_bool, as_float, as_int, common, handles
from .failures import CannotTrace
from .integers import (
    bounds,
    check_numbers,
    fitted,
    infix_bounds,
    result_dtype,
    typed,
    widened,
)
from .symbols import AND, ATOM, COMPARISON, OR, PRODUCT, SHIFT, SUM, UNARY, XOR, Symbol

if TYPE_CHECKING:
    from .tracing import Trace

# --- arithmetic ------------------------------------------------------------------------------


def infix(trace: Trace, a: Any, sign: Any, b: Any, binds: Any, kind: Any) -> Symbol:
    made = trace.node(f"{a.inside(binds)} {sign} {b.inside(binds + 1)}", binds, kind)
    if kind != "int":
        return made
    dtype = result_dtype(a, b)
    if sign in ("//", "%", ">>"):
        check_numbers(dtype, a, b)
    return fitted(trace, made, dtype, infix_bounds(sign, a, b, dtype))


def scaled(trace: Trace, b: Any, alpha: Any) -> Symbol:
    return b if alpha == 1 else multiply(trace, b, alpha)


@handles("add")
def add(trace: Trace, a: Any, b: Any, *, alpha: Any = 1) -> Symbol:
    a, b = trace.operands(a, scaled(trace, b, alpha))
    if a.kind == b.kind == "bool":
        return logical_or(trace, a, b)
    a, b = common(trace, a, b)
    return infix(trace, a, "+", b, SUM, a.kind)


@handles("sub", "subtract")
def subtract(trace: Trace, a: Any, b: Any, *, alpha: Any = 1) -> Symbol:
    a, b = trace.operands(a, scaled(trace, b, alpha))
    if a.kind == b.kind == "bool":
        raise CannotTrace("a boolean minus a boolean, which torch refuses too; use ^ or & ~")
    a, b = common(trace, a, b)
    return infix(trace, a, "-", b, SUM, a.kind)


@handles("rsub")
def reversed_subtract(trace: Trace, a: Any, b: Any, *, alpha: Any = 1) -> Symbol:
    return subtract(trace, b, a, alpha=alpha)


@handles("mul", "multiply")
def multiply(trace: Trace, a: Any, b: Any) -> Symbol:
    a, b = trace.operands(a, b)
    if a.kind == b.kind == "bool":
        return logical_and(trace, a, b)
    a, b = common(trace, a, b)
    return infix(trace, a, "*", b, PRODUCT, a.kind)


@handles("div", "divide", "true_divide")
def divide(trace: Trace, a: Any, b: Any, *, rounding_mode: Any = None) -> Symbol:
    if rounding_mode == "floor":
        return floor_divide(trace, a, b)
    a, b = trace.operands(a, b)
    if rounding_mode == "trunc":
        a, b = common(trace, a, b)
        if a.kind == "int":
            dtype = result_dtype(a, b)
            check_numbers(dtype, a, b)
            a, b = widened(trace, a), widened(trace, b)
            down, up = (
                floor_divide(trace, a, b),
                negate(trace, floor_divide(trace, negate(trace, a), b)),
            )
            quotient = where(trace, less(trace, bitwise_xor(trace, a, b), 0), up, down)
            return fitted(trace, quotient, dtype, bounds(quotient))
        return truncate(trace, divide(trace, a, b))
    if rounding_mode is not None:
        raise CannotTrace(f"rounding_mode={rounding_mode!r} of a division")
    if not trace.has_floats and "float" not in (a.kind, b.kind):
        raise CannotTrace(
            "/ gives a float, and masks are computed with integers; use // or compare products"
        )
    return infix(trace, as_float(trace, a), "/", as_float(trace, b), PRODUCT, "float")


@handles("floor_divide", "floordiv")
def floor_divide(trace: Trace, a: Any, b: Any) -> Symbol:
    a, b = common(trace, *trace.operands(a, b))
    return infix(trace, a, "//", b, PRODUCT, a.kind)


@handles("remainder", "mod")
def remainder(trace: Trace, a: Any, b: Any) -> Symbol:
    a, b = common(trace, *trace.operands(a, b))
    return infix(trace, a, "%", b, PRODUCT, a.kind)


@handles("reciprocal")
def reciprocal(trace: Trace, x: Any) -> Symbol:
    return divide(trace, 1.0, x)


@handles("square")
def square(trace: Trace, x: Any) -> Symbol:
    return power(trace, x, 2)


@handles("pow", "float_power")
def power(trace: Trace, a: Any, b: Any) -> Symbol:
    a, b = trace.operands(a, b)
    if "float" not in (a.kind, b.kind):
        a, b = as_int(trace, a), as_int(trace, b)
        if b.value is None or not 0 <= b.value <= 63:
            raise CannotTrace("an integer to a power that is not a constant from 0 to 63")
        dtype = result_dtype(a, b)
        return fitted(trace, trace.node(f"{a.inside(ATOM)} ** {b.text}", UNARY, "int"), dtype)
    return trace.node(f"pow({as_float(trace, a).text}, {as_float(trace, b).text})", ATOM, "float")


@handles("neg", "negative")
def negate(trace: Trace, x: Any) -> Symbol:
    (x,) = trace.operands(x)
    if x.kind == "bool":
        raise CannotTrace("minus a boolean, which torch refuses too; use ~")
    if x.value is not None:
        negative = trace.constant(-x.value)
        return negative if x.is_number else fitted(trace, negative, x.dtype)
    made = trace.node(f"-{x.inside(UNARY)}", UNARY, x.kind)
    if x.kind != "int":
        return made
    low, high = bounds(x)
    return fitted(trace, made, x.dtype, (-high, -low))


@handles("positive", "detach", "contiguous", "item", "alias", "cpu", "cuda")
def same(trace: Trace, x: Any) -> Symbol:
    return trace.operands(x)[0]


@handles("clone")
def clone(trace: Trace, x: Any) -> Symbol:
    return trace.operands(x)[0].copy()


@handles("abs", "absolute")
def absolute(trace: Trace, x: Any) -> Symbol:
    (x,) = trace.operands(x)
    if x.kind == "bool":
        raise CannotTrace("abs() of a boolean, which torch refuses too")
    made = trace.node(f"abs({x.text})", ATOM, x.kind)
    if x.kind != "int":
        return made
    low, high = bounds(x)
    return fitted(trace, made, x.dtype, (0, max(-low, high)))


@handles("sign", "sgn")
def sign(trace: Trace, x: Any) -> Symbol:
    (x,) = trace.operands(x)
    made = where(trace, less(trace, 0, x), 1, where(trace, less(trace, x, 0), -1, 0))
    return typed(trace, made, x.dtype, (-1, 1)) if x.kind == "int" else made


# --- shifts and logic ------------------------------------------------------------------------


def integers(trace: Trace, what: Any, *xs: Any) -> Any:
    xs = trace.operands(*xs)
    if any(x.kind == "float" for x in xs):
        raise CannotTrace(f"{what} of floats, which torch refuses too")
    return xs


@handles("bitwise_left_shift", "lshift")
def shift_left(trace: Trace, a: Any, b: Any) -> Symbol:
    a, b = (as_int(trace, x) for x in integers(trace, "<<", a, b))
    return infix(trace, a, "<<", b, SHIFT, "int")


@handles("bitwise_right_shift", "rshift")
def shift_right(trace: Trace, a: Any, b: Any) -> Symbol:
    a, b = (as_int(trace, x) for x in integers(trace, ">>", a, b))
    return infix(trace, a, ">>", b, SHIFT, "int")


def bitwise(trace: Trace, a: Any, sign: Any, b: Any, binds: Any) -> Symbol:
    a, b = integers(trace, sign, a, b)
    kind = "bool" if a.kind == b.kind == "bool" else "int"
    if kind == "int":
        a, b = as_int(trace, a), as_int(trace, b)
    return infix(trace, a, sign, b, binds, kind)


@handles("bitwise_and", "and")
def bitwise_and(trace: Trace, a: Any, b: Any) -> Symbol:
    a, b = trace.operands(a, b)
    if a.kind == b.kind == "bool":  # and_masks() starts at True, or_masks() at False
        for x, y in ((a, b), (b, a)):
            if x.value is not None:
                return y if x.value else x
    return bitwise(trace, a, "&", b, AND)


@handles("bitwise_or", "or")
def bitwise_or(trace: Trace, a: Any, b: Any) -> Symbol:
    a, b = trace.operands(a, b)
    if a.kind == b.kind == "bool":
        for x, y in ((a, b), (b, a)):
            if x.value is not None:
                return x if x.value else y
    return bitwise(trace, a, "|", b, OR)


@handles("bitwise_xor", "xor")
def bitwise_xor(trace: Trace, a: Any, b: Any) -> Symbol:
    return bitwise(trace, a, "^", b, XOR)


@handles("bitwise_not", "invert")
def bitwise_not(trace: Trace, x: Any) -> Symbol:
    (x,) = integers(trace, "~", x)
    if x.kind == "bool" and x.value is not None:
        return trace.constant(not x.value)
    made = trace.node(f"~{x.inside(UNARY)}", UNARY, x.kind)
    if x.kind != "int":
        return made
    low, high = bounds(x)
    return fitted(trace, made, x.dtype, (~high, ~low))


def truths(trace: Trace, *xs: Any) -> Any:
    return (as_bool(trace, x) for x in trace.operands(*xs))


@handles("logical_and")
def logical_and(trace: Trace, a: Any, b: Any) -> Symbol:
    return bitwise_and(trace, *truths(trace, a, b))


@handles("logical_or")
def logical_or(trace: Trace, a: Any, b: Any) -> Symbol:
    return bitwise_or(trace, *truths(trace, a, b))


@handles("logical_xor")
def logical_xor(trace: Trace, a: Any, b: Any) -> Symbol:
    return bitwise_xor(trace, *truths(trace, a, b))


@handles("logical_not")
def logical_not(trace: Trace, x: Any) -> Symbol:
    return bitwise_not(trace, *truths(trace, x))


# --- comparisons -----------------------------------------------------------------------------

_SWAPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}
_COMPARISONS = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}


def compare(trace: Trace, a: Any, sign: Any, b: Any) -> Symbol:
    a, b = trace.operands(a, b)
    if a.value is not None and b.value is None:
        a, sign, b = b, _SWAPPED[sign], a
    if a.value is not None and b.value is not None:
        return trace.constant(_COMPARISONS[sign](a.value, b.value))
    if "float" in (a.kind, b.kind) and a.kind != b.kind:
        if b.kind == "float" and b.value is not None and a.kind == "int" and a.value is None:
            return compare_with_fraction(trace, a, sign, b.value)
        a, b = as_float(trace, a), as_float(trace, b)
    elif a.kind != b.kind:
        a, b = as_int(trace, a), as_int(trace, b)
    if a.kind == b.kind == "int":
        check_numbers(result_dtype(a, b), a, b)  # eager torch compares exactly, torch.vmap bends
    return trace.node(
        f"{a.inside(COMPARISON + 1)} {sign} {b.inside(COMPARISON + 1)}", COMPARISON, "bool"
    )


def compare_with_fraction(trace: Trace, x: Any, sign: Any, bound: float) -> Symbol:
    """An integer against a float constant, exactly: x < 3.5 is x < 4."""
    if math.isnan(bound):
        return trace.constant(sign == "!=")
    if abs(bound) >= 2.0**63:
        below = bound > 0
        return trace.constant(
            sign == "!=" or (below if sign in ("<", "<=") else not below and sign in (">", ">="))
        )
    if sign in ("==", "!=") and bound != math.floor(bound):
        return trace.constant(sign == "!=")
    whole = math.ceil(bound) if sign in ("<", ">=") else math.floor(bound)
    return compare(trace, x, sign, whole)


@handles("eq")
def equal(trace: Trace, a: Any, b: Any) -> Symbol:
    return compare(trace, a, "==", b)


@handles("ne", "not_equal")
def not_equal(trace: Trace, a: Any, b: Any) -> Symbol:
    return compare(trace, a, "!=", b)


@handles("lt", "less")
def less(trace: Trace, a: Any, b: Any) -> Symbol:
    return compare(trace, a, "<", b)


@handles("le", "less_equal")
def less_equal(trace: Trace, a: Any, b: Any) -> Symbol:
    return compare(trace, a, "<=", b)


@handles("gt", "greater")
def greater(trace: Trace, a: Any, b: Any) -> Symbol:
    return compare(trace, a, ">", b)


@handles("ge", "greater_equal")
def greater_equal(trace: Trace, a: Any, b: Any) -> Symbol:
    return compare(trace, a, ">=", b)


# --- selection -------------------------------------------------------------------------------


@handles("where")
def where(trace: Trace, condition: Any, x: Any = None, y: Any = None) -> Symbol:
    if x is None or y is None:
        raise CannotTrace("torch.where with a condition alone; give both values")
    condition, x, y = trace.operands(condition, x, y)
    if condition.kind != "bool":
        raise CannotTrace("torch.where with a condition that is not boolean, which torch refuses")
    if x.kind == y.kind == "bool":
        # As logic, so that a mask made this way is joined like any other.
        return bitwise_or(
            trace,
            bitwise_and(trace, condition, x),
            bitwise_and(trace, bitwise_not(trace, condition), y),
        )
    x, y = common(trace, x, y)
    made = trace.node(
        f"where({condition.text}, {x.text}, {y.text})", ATOM, x.kind, parts=(condition, x, y)
    )
    return either(trace, made, x, y)


def either(trace: Trace, made: Symbol, x: Symbol, y: Symbol) -> Symbol:
    """An expression whose value is that of one of two operands of one kind."""
    if made.kind != "int":
        return made
    dtype = result_dtype(x, y)
    check_numbers(dtype, x, y)
    (x_low, x_high), (y_low, y_high) = bounds(x), bounds(y)
    return typed(trace, made, dtype, (min(x_low, y_low), max(x_high, y_high)))


@handles("Tensor.where")
def where_method(trace: Trace, x: Any, condition: Any, y: Any) -> Symbol:
    return where(trace, condition, x, y)


@handles("masked_fill")
def masked_fill(trace: Trace, x: Any, condition: Any, value: Any) -> Symbol:
    (x,) = trace.operands(x)
    made = where(trace, condition, value, x)
    return fitted(trace, made, x.dtype, bounds(made)) if x.kind == made.kind == "int" else made


def extreme(trace: Trace, name: Any, a: Any, b: Any) -> Symbol:
    a, b = trace.operands(a, b)
    if a.kind == b.kind == "bool":
        return logical_and(trace, a, b) if name == "min" else logical_or(trace, a, b)
    a, b = common(trace, a, b)
    return either(trace, trace.node(f"{name}({a.text}, {b.text})", ATOM, a.kind), a, b)


@handles("minimum", "min")
def minimum(trace: Trace, a: Any, b: Any) -> Symbol:
    return extreme(trace, "min", a, b)


@handles("maximum", "max")
def maximum(trace: Trace, a: Any, b: Any) -> Symbol:
    return extreme(trace, "max", a, b)


@handles("clamp", "clip")
def clamp(trace: Trace, x: Any, min: Any = None, max: Any = None) -> Symbol:
    if min is not None:
        x = maximum(trace, x, min)
    return x if max is None else minimum(trace, x, max)


@handles("clamp_min")
def clamp_min(trace: Trace, x: Any, min: Any) -> Symbol:
    return maximum(trace, x, min)


@handles("clamp_max")
def clamp_max(trace: Trace, x: Any, max: Any) -> Symbol:
    return minimum(trace, x, max)


@handles("relu")
def relu(trace: Trace, x: Any, inplace: Any = False) -> Symbol:
    if inplace:
        raise CannotTrace("relu in place")
    return maximum(trace, x, 0)


@handles("isin")
def isin(trace: Trace, x: Any, members: Any, *, invert: Any = False) -> Symbol:
    """Membership in a captured list of integers: a lookup in a table of the values it spans."""
    (x,) = trace.operands(x)
    if (
        x.kind != "int"
        or not isinstance(members, torch.Tensor)
        or members.dtype == torch.bool
        or (members.is_floating_point())
    ):
        raise CannotTrace("torch.isin of anything but an integer in a tensor of integers")
    found = trace.membership(x, members)
    return bitwise_not(trace, found) if invert else found


# --- functions of floats ---------------------------------------------------------------------


def _float_function(name: Any, *torch_names: Any) -> Any:
    @handles(*torch_names)
    def function(trace: Trace, x: Any) -> Symbol:
        (x,) = trace.operands(x)
        return trace.node(f"{name}({as_float(trace, x).text})", ATOM, "float")


for _name, _torch_names in {
    "exp": ("exp",),
    "exp2": ("exp2", "special_exp2"),
    "log": ("log",),
    "log2": ("log2",),
    "sqrt": ("sqrt",),
    "rsqrt": ("rsqrt",),
    "tanh": ("tanh",),
    "sigmoid": ("sigmoid", "special_expit"),
    "sin": ("sin",),
    "cos": ("cos",),
}.items():
    _float_function(_name, *_torch_names)


@handles("floor")
def floor(trace: Trace, x: Any) -> Symbol:
    (x,) = trace.operands(x)
    return x if x.kind != "float" else floor_divide(trace, x, 1.0)


@handles("ceil")
def ceil(trace: Trace, x: Any) -> Symbol:
    return negate(trace, floor(trace, negate(trace, x)))


@handles("trunc", "fix")
def truncate(trace: Trace, x: Any) -> Symbol:
    (x,) = trace.operands(x)
    if x.kind != "float":
        return x
    return where(trace, less(trace, x, 0.0), ceil(trace, x), floor(trace, x))
