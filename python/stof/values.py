"""Numbers and flags on their way to C, where whole numbers have 64 bits or 32."""

from __future__ import annotations

import operator
from typing import Any, Sequence

from .errors import InvalidArgument


def whole(value: Any, name: str, bits: int = 64) -> int:
    """An integer of anything that is one. Raises InvalidArgument for others and for what C would wrap."""
    try:
        number = operator.index(value)
    except (TypeError, RuntimeError, ValueError):  # torch's tensors raise the last two
        raise InvalidArgument(f"{name}: expected a whole number, got {value!r}") from None
    if not -(1 << (bits - 1)) <= number < 1 << (bits - 1):
        raise InvalidArgument(f"{name}: expected a whole number of {bits} bits, got {number}")
    return number


def seed_of(value: Any) -> int:
    """A seed: not negative, of 64 bits."""
    try:
        number = operator.index(value)
    except (TypeError, RuntimeError, ValueError):
        raise InvalidArgument(f"seed: expected a whole number, got {value!r}") from None
    if not 0 <= number < 1 << 64:
        raise InvalidArgument(f"seed: expected a whole number from 0 to 2**64 - 1, got {number}")
    return number


def extent(value: Any, name: str, least: int) -> int:
    number = whole(value, name)
    if number < least:
        raise InvalidArgument(f"{name}: expected at least {least}, got {number}")
    return number


def wholes(values: Any, name: str) -> list[int]:
    """A list, or an array of NumPy or torch."""
    if hasattr(values, "tolist"):
        values = values.tolist()
    try:
        items: Sequence[Any] = list(values)
    except TypeError:
        raise InvalidArgument(f"{name}: expected a list of whole numbers, got {values!r}") from None
    return [whole(value, f"{name}[{i}]") for i, value in enumerate(items)]


def truth(value: Any, name: str) -> bool:
    if not isinstance(value, bool):
        raise InvalidArgument(f"{name}: expected True or False, got {value!r}")
    return value
