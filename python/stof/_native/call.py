"""Turns statuses into exceptions, and the library's texts into Python's."""

from __future__ import annotations

import ctypes
import json
import re
from typing import Any, Callable

from ..errors import BY_STATUS, InternalError, InvalidArgument
from .shared_library import library


#: The C interface's names in messages, and what they are called here.
_IN_PYTHON = (
    (r"call stof_mask_bind\(\) first", "call mask.bind(seq_q, seq_kv, ...) first"),
    (r"\bstof_mask_bind\(\)", "mask.bind()"),
    (r"\bstof_mask_from_json\(\)", "stof.masks.from_json()"),
    (r"\bstof_mask_(parse|dense|predicate)\(\)", r"stof.masks.\1()"),
    (r"\bstof_plan_(?:dense_)?attention\(\)", "stof.plan()"),
    (r"\bstof_plan_varlen_attention\(\)", "stof.varlen_plan()"),
    (r"\bstof_plan_block_lists\(\)", "stof.BlockListPlan()"),
    (r"\bstof_plan_decode\(\)", "stof.DecodePlan()"),
    (r"\bstof_plan_run\(\)", "Plan.run()"),
    (r"\bSTOF_CPU\b", 'device="cpu"'),
    (r"\bSTOF_GPU\b", 'device="cuda"'),
    (r"\bproblem\.position_buckets\b", "position_bias.num_buckets"),
    (r"\bposition_buckets\b", "position_bias.num_buckets"),
    (r"\bposition_max_distance\b", "position_bias.max_distance"),
    (r"\bposition_bidirectional\b", "position_bias.bidirectional"),
    (r"\battention problem head_dim_qk\b", "head_dim, the last extent of q and k"),
    (r"\battention problem head_dim_v\b", "head_dim_v, the last extent of v"),
    (r"^dense: (?=expected an array of )", "mask: dense: "),
    (r"\battention problem (?=[a-z_.]+:)", ""),
    (r"\b(?:problem|tensors|options|target|model)\.(?=[a-z])", ""),
    (r"\bhead_dim_qk\b", "head_dim"),
    (r"\bnum_heads_q\b", "num_heads"),
    (r"\balibi_slopes\b", "alibi"),
    (r"\bwindow_left\b", "window[0]"),
    (r"\bwindow_right\b", "window[1]"),
)


def in_python(message: str) -> str:
    """A message of the library with the names that this package has for things."""
    for pattern, name in _IN_PYTHON:
        message = re.sub(pattern, name, message)
    return message


def check(status: int) -> None:
    """Raises the exception class of a status other than 0, with the library's message."""
    if status:
        message = library().stof_last_error().decode("utf-8", "replace")
        raise BY_STATUS.get(status, InternalError)(in_python(message))


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
