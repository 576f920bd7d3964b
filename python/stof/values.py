"""What arguments may be before they are looked at closely: numbers, flags, lists, words and
paths."""

from __future__ import annotations

import operator
import os
from typing import Any, Iterable, Sequence

from .errors import InvalidArgument


def whole(value: Any, name: str, bits: int = 64) -> int:
    """An integer of anything that is one. Raises InvalidArgument for others and for what C would
    wrap."""
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
        try:
            values = values.tolist()
        except RuntimeError as error:  # torch's, of tensors that have no values to read
            raise InvalidArgument(
                f"{name}: expected whole numbers that can be read, got a {type(values).__name__}: "
                f"{str(error).splitlines()[0]}"
            ) from error
    given = items(values, name, "whole numbers")
    return [whole(value, f"{name}[{i}]") for i, value in enumerate(given)]


def items(values: Any, name: str, what: str) -> Sequence[Any]:
    """A list of anything that can be walked through."""
    try:
        return list(values)
    except TypeError:
        raise InvalidArgument(f"{name}: expected a list of {what}, got {values!r}") from None


def number(value: Any, name: str) -> float:
    """A number of anything that is one, which text is not."""
    try:
        if isinstance(value, (str, bytes)):
            raise TypeError
        return float(value)
    except (TypeError, ValueError, OverflowError, RuntimeError):  # torch raises the last
        raise InvalidArgument(f"{name}: expected a number, got {value!r}") from None


def choice(value: Any, name: str, known: Iterable[str]) -> str:
    """One of a few words."""
    words = list(known)
    if not isinstance(value, str) or value not in words:
        expected = " or ".join(f'"{word}"' for word in words)
        raise InvalidArgument(f"{name}: expected {expected}, got {value!r}")
    return value


def path_of(value: Any, name: str) -> str:
    """A file's or folder's path as text."""
    try:
        return os.fsdecode(value)
    except TypeError:
        raise InvalidArgument(f"{name}: expected a path, got {value!r}") from None


def truth(value: Any, name: str) -> bool:
    if not isinstance(value, bool):
        raise InvalidArgument(f"{name}: expected True or False, got {value!r}")
    return value
