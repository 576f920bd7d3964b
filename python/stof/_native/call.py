"""Turns statuses into exceptions, and the library's texts into Python's."""

from __future__ import annotations

import ctypes
import json
import re
from functools import lru_cache
from typing import Any, Callable

from ..errors import BY_STATUS, InternalError, InvalidArgument
from .shared_library import library
from .structs import Sized


#: What the C interface calls an argument, and what it is called here.
_ARGUMENTS = {
    "head_dim_qk": "head_dim",
    "num_heads_q": "num_heads",
    "alibi_slopes": "alibi",
    "window_left": "window[0]",
    "window_right": "window[1]",
}
#: Of attention problems, where the arrays' shapes give these numbers.
_OF_PROBLEMS = {
    "head_dim_qk": "head_dim, the last extent of q and k",
    "head_dim_v": "head_dim_v, the last extent of v",
}
#: Other places where the library itself names an argument or one of its functions.
_PHRASES = (
    ("; call stof_mask_bind() first", "; call mask.bind(seq_q, seq_kv, ...) first"),
    (" a divisor of num_heads_q = ", " a divisor of num_heads = "),
    (" memory apart from alibi_slopes, ", " memory apart from alibi, "),
)
_OWNER = re.compile(
    r"(?:attention problem |(?:problem|tensors|options|target|model)\.)(?=([a-z_]+))"
)
_QUOTED = re.compile(r'("[^"]*")')


@lru_cache(maxsize=None)
def _fields() -> frozenset[str]:
    """Every field of the C interface's structs, and what the library names besides."""
    structs = Sized.__subclasses__()
    names = {name for struct in structs for name, *_ in struct._fields_}
    return frozenset(names | {"position_bias"})


def _argument(name: str) -> str:
    """What stands before a message's first colon, in this package's names for an argument."""
    known = _ARGUMENTS
    owner = _OWNER.match(name)
    if owner and owner[1] in _fields():
        name = name[owner.end() :]
        if owner[0] == "attention problem ":
            known = {**_ARGUMENTS, **_OF_PROBLEMS}
    start, joined, others = name, "", ""
    for separator in (", ", " * "):
        if separator in name:
            start, joined, others = name.partition(separator)
            break
    found = re.match(r"[a-z_]+", start)
    if found and found[0] in known:
        start = known[found[0]] + start[found.end() :]
    return start + joined + (_argument(others) if joined else "")


def in_python(message: str) -> str:
    """A message of the library with the names that this package has for things.

    Only the library's own words change: the argument at the start and some whole phrases. What may
    be the caller's text, quoted or on further lines or the name of a file, stays as it is.
    """
    first, newline, echoed = message.partition("\n")
    name, colon, said = first.partition(":")
    if name == "dense" and said.startswith(" expected an array of "):
        name = "mask: dense"
    pieces = _QUOTED.split(said)
    for i in range(0, len(pieces), 2):  # the others are quoted
        for phrase, here in _PHRASES:
            pieces[i] = pieces[i].replace(phrase, here)
    return (_argument(name) if colon else name) + colon + "".join(pieces) + newline + echoed


def check(status: int) -> None:
    """Raises the exception class of a status other than 0, with the library's message."""
    if status:
        message = library().stof_last_error().decode("utf-8", "replace")
        raise BY_STATUS.get(status, InternalError)(in_python(message))


def encoded(text: str, name: str) -> bytes:
    """As C takes it. Raises InvalidArgument for what is no text and what C would cut off or cannot
    hold."""
    if not isinstance(text, str):
        raise InvalidArgument(f"{name}: expected text, got {text!r}")
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
