"""Between which values an index expression lies, over all pairs of some lengths."""

from __future__ import annotations

import ast
import functools
import operator
from typing import Any, NamedTuple

import numpy

# Longer ones are not looked at: of what users write, few are.
_MAX_TEXT = 200

# An expression about which nothing is known beforehand is computed for all values of its variables
# where these are no more, which takes some ms.
_MAX_PAIRS = 1 << 20


class _Values(NamedTuple):
    """A set of integers: its least, its greatest, and whether all between belong to it."""

    least: int
    greatest: int
    has_all: bool


class _NotKnown(Exception):
    pass


def _infix(node: ast.BinOp, a: _Values, b: _Values) -> _Values:
    """Of operands that share no variable, so that every pair of their values occurs."""
    has_all = a.has_all and b.has_all
    if isinstance(node.op, ast.Add):
        return _Values(a.least + b.least, a.greatest + b.greatest, has_all)
    if isinstance(node.op, ast.Sub):
        return _Values(a.least - b.greatest, a.greatest - b.least, has_all)
    if isinstance(node.op, ast.Mult):
        corners = [x * y for x in a[:2] for y in b[:2]]
        units = any(x.least == x.greatest and abs(x.least) <= 1 for x in (a, b))
        return _Values(min(corners), max(corners), has_all and units)
    divisor = b.least
    if divisor != b.greatest or divisor <= 0:
        raise _NotKnown
    if isinstance(node.op, ast.FloorDiv):
        return _Values(a.least // divisor, a.greatest // divisor, a.has_all)
    if isinstance(node.op, ast.Mod) and a.has_all:
        first, last = a.least % divisor, a.greatest % divisor
        if a.greatest - a.least + 1 >= divisor or first > last:
            return _Values(0, divisor - 1, a.greatest - a.least + 1 >= divisor)
        return _Values(first, last, True)
    raise _NotKnown


def _call(name: str, arguments: list[_Values]) -> _Values:
    if name == "abs" and len(arguments) == 1 and arguments[0].has_all:
        (x,) = arguments
        ends = abs(x.least), abs(x.greatest)
        return _Values(0 if x.least <= 0 <= x.greatest else min(ends), max(ends), True)
    if name in ("min", "max") and len(arguments) == 2:
        pick, (a, b) = (min if name == "min" else max), arguments
        return _Values(
            pick(a.least, b.least), pick(a.greatest, b.greatest), a.has_all and b.has_all
        )
    raise _NotKnown


def _values(node: Any, extents: dict[str, int]) -> _Values:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return _Values(node.value, node.value, True)
    if isinstance(node, ast.Name) and extents.get(node.id, 0) > 0:
        # Each variable once: what is left of an expression does not depend on it.
        return _Values(0, extents.pop(node.id) - 1, True)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        x = _values(node.operand, extents)
        return _Values(-x.greatest, -x.least, x.has_all)
    if isinstance(node, ast.BinOp):
        left = _values(node.left, extents)
        return _infix(node, left, _values(node.right, extents))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
        return _call(node.func.id, [_values(x, extents) for x in node.args])
    raise _NotKnown


# --- computed for all pairs --------------------------------------------------------------------

_INFIX: dict[Any, Any] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Pow: operator.pow,
    ast.Div: operator.truediv, ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
    ast.LShift: operator.lshift, ast.RShift: operator.rshift,
    ast.BitAnd: operator.and_, ast.BitOr: operator.or_,
    ast.BitXor: operator.xor, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge, ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.USub: operator.neg,
    ast.Invert: operator.invert,
}  # fmt: skip
_FUNCTIONS: dict[str, Any] = {
    "abs": numpy.abs, "min": numpy.minimum, "max": numpy.maximum, "where": numpy.where,
    "float": numpy.float32, "int": lambda x: numpy.trunc(x).astype(numpy.int64),
    "floor": numpy.floor, "ceil": numpy.ceil, "trunc": numpy.trunc,
}  # fmt: skip


def _all_values(node: Any, variables: dict[str, Any]) -> Any:
    """Of integers as torch computes them, and of floats in float32."""
    if isinstance(node, ast.Constant) and isinstance(node.value, (bool, int, float)):
        kinds: dict[type, Any] = {bool: numpy.bool_, int: numpy.int64, float: numpy.float32}
        return kinds[type(node.value)](node.value)
    if isinstance(node, ast.Name) and node.id in variables:
        return variables[node.id]
    if isinstance(node, ast.UnaryOp) and type(node.op) in _INFIX:
        return _INFIX[type(node.op)](_all_values(node.operand, variables))
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _INFIX:
        left, right = (_all_values(x, variables) for x in (node.left, node.comparators[0]))
        return _INFIX[type(node.ops[0])](left, right)
    if isinstance(node, ast.BinOp) and type(node.op) in _INFIX:
        left, right = (_all_values(x, variables) for x in (node.left, node.right))
        if isinstance(node.op, (ast.Div, ast.FloorDiv, ast.Mod)) and not numpy.all(right > 0):
            raise _NotKnown
        if isinstance(node.op, (ast.LShift, ast.RShift)):
            if not numpy.all((right >= 0) & (right < 64)):
                raise _NotKnown
        return _INFIX[type(node.op)](left, right)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
        if node.func.id in _FUNCTIONS:
            return _FUNCTIONS[node.func.id](*(_all_values(x, variables) for x in node.args))
    raise _NotKnown


def _of_all_pairs(tree: Any, extents: dict[str, int]) -> tuple[int, int]:
    names = {x.id for x in ast.walk(tree) if isinstance(x, ast.Name)} & set(extents)
    count = 1
    for name in names:
        count *= extents[name]
    if not 0 < count <= _MAX_PAIRS:
        raise _NotKnown
    used = sorted(names)
    grids = numpy.ix_(*(numpy.arange(extents[name], dtype=numpy.int64) for name in used))
    with numpy.errstate(all="ignore"):
        values = _all_values(tree, dict(zip(used, grids)))
    if values.dtype != numpy.int64:
        raise _NotKnown
    return int(values.min()), int(values.max())


@functools.lru_cache(maxsize=256)
def bounds_of_index(
    text: str, batch: int, heads: int, q_len: int, kv_len: int
) -> tuple[int, int] | None:
    """The least and the greatest value, both of which occur; None where that is not known: of
    tables, conditions, bits, and of expressions that use a variable twice."""
    if len(text) > _MAX_TEXT:
        return None
    extents = {"b": batch, "h": heads, "q": q_len, "k": kv_len}
    try:
        tree = ast.parse(text, mode="eval").body
    except SyntaxError:
        return None
    for find in (lambda: _values(tree, dict(extents))[:2], lambda: _of_all_pairs(tree, extents)):
        try:
            return find()
        except (_NotKnown, TypeError, ValueError):  # the last of numpy: negative powers
            pass
    return None
