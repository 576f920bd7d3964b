"""Why a mask_mod or score_mod could not be turned into an expression, and where in its source."""

from __future__ import annotations

import os
import sys
import traceback
import warnings
from typing import Any

import torch

_OWN_FOLDER = os.path.dirname(os.path.abspath(__file__)) + os.sep
_PACKAGE_FOLDER = os.path.dirname(os.path.dirname(os.path.dirname(_OWN_FOLDER))) + os.sep
_TORCH_FOLDER = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep


class TraceWarning(UserWarning):
    """A mask_mod or score_mod could not be traced, so it was evaluated for every pair of positions.

    The result is right. A mask takes time and memory proportional to the number of pairs, where a
    traced one takes neither; of a score_mod all of attention is computed by torch. The message
    names the operation and the line that stopped the trace.
    """


class CannotTrace(Exception):
    """Internal: the user's function did something that has no expression. `str()` is the reason."""


def _is_user_file(file: str) -> bool:
    return not file.startswith((_PACKAGE_FOLDER, _TORCH_FOLDER, "<frozen"))


def source_place(error: BaseException, function: Any) -> str:
    """`file:line, in name` of the user's line that raised, or of the function's definition."""
    frames = traceback.extract_tb(error.__traceback__)
    users = [frame for frame in frames if _is_user_file(frame.filename)]
    if users:
        last = users[-1]
        return f"{last.filename}:{last.lineno}, in {last.name}"
    code = getattr(function, "__code__", None)
    if code is not None:
        return f"{code.co_filename}:{code.co_firstlineno}, in {code.co_name}"
    return repr(function)


def reason(error: BaseException) -> str:
    """What stopped the trace, in words: our own reason, or the exception of the user's code."""
    if isinstance(error, CannotTrace):
        return str(error)
    text = str(error).splitlines()[0] if str(error) else "no message"
    return f"{type(error).__name__}: {text}"


def warn_user(message: str) -> None:
    """A TraceWarning that points at the caller's line, not into the package."""
    level = 1
    frame = sys._getframe()
    while frame.f_back is not None and not _is_user_file(frame.f_code.co_filename):
        frame = frame.f_back
        level += 1
    warnings.warn(message, TraceWarning, stacklevel=level)
