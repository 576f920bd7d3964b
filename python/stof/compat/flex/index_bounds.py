"""Between which values an index expression lies, over all pairs of some lengths."""

from __future__ import annotations

import ast
import functools
from typing import Any, NamedTuple

# Longer ones are not looked at: they would need more than one use of a variable.
_MAX_TEXT = 200


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
        return _values(ast.parse(text, mode="eval").body, extents)[:2]
    except (_NotKnown, SyntaxError):
        return None
