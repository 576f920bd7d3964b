"""Turns statuses into exceptions, and the library's texts into Python's."""

from __future__ import annotations

import ctypes
import json
from typing import Any, Callable

from ..errors import BY_STATUS, InternalError, InvalidArgument
from .library import library


def check(status: int) -> None:
    """Raises the exception class of a status other than 0, with the library's message."""
    if status:
        message = library().stof_last_error().decode("utf-8", "replace")
        raise BY_STATUS.get(status, InternalError)(message)


def encoded(text: str, name: str) -> bytes:
    """As C takes it. Raises InvalidArgument for what C would cut off or cannot hold."""
    if "\0" in text:
        raise InvalidArgument(f"{name}: expected text without NUL characters, got {text!r}")
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgument(f"{name}: expected text that UTF-8 can write, got {error}") from None


def text_of(function: Callable[..., int], *arguments: Any) -> str:
    """Calls a function whose last parameter is a char** and gives the text."""
    pointer = ctypes.c_void_p()
    check(function(*arguments, ctypes.byref(pointer)))
    try:
        return ctypes.string_at(pointer.value or 0).decode()
    finally:
        library().stof_text_release(pointer)


def json_of(function: Callable[..., int], *arguments: Any) -> Any:
    """The same for JSON."""
    return json.loads(text_of(function, *arguments))


def bytes_of(function: Callable[..., int], *arguments: Any) -> bytes:
    """Calls a function whose last parameters are an unsigned char** and a size_t*."""
    pointer, size = ctypes.c_void_p(), ctypes.c_size_t()
    check(function(*arguments, ctypes.byref(pointer), ctypes.byref(size)))
    try:
        return ctypes.string_at(pointer.value or 0, size.value)
    finally:
        library().stof_bytes_release(pointer)
