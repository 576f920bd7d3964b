"""Ctrl-C, and other signals, while the library works for long."""

from __future__ import annotations

import ctypes
import threading
from typing import Any, Callable, TypeVar

from ._native import library

_Result = TypeVar("_Result")
#: Memory that the work reads should outlive it; a kernel that is being compiled is not waited for.
_SECONDS_TO_END = 1.0


def interruptible(work: Callable[[], _Result]) -> _Result:
    """work(), on a thread of its own where this is the main one: Python serves signals there only,
    and not inside a call of the library. What a handler raises, as KeyboardInterrupt, ends the work
    and is raised."""
    if threading.current_thread() is not threading.main_thread():
        return work()
    cancelled, done = ctypes.c_int32(0), threading.Event()
    results: list[Any] = []
    errors: list[BaseException] = []

    def run() -> None:
        library().stof_set_cancel_flag(ctypes.byref(cancelled))
        try:
            results.append(work())
        except BaseException as error:  # raised again below
            errors.append(error)
        finally:
            library().stof_set_cancel_flag(None)
            done.set()

    try:
        threading.Thread(target=run, name="stof-planning", daemon=True).start()
    except RuntimeError:  # there are no new threads while the interpreter ends
        return work()
    except BaseException:
        cancelled.value = 1
        raise
    try:
        done.wait()
    except BaseException:
        cancelled.value = 1
        done.wait(_SECONDS_TO_END)
        raise
    if errors:
        try:
            raise errors[0]
        finally:
            errors.clear()  # no cycle with the traceback
    result: _Result = results[0]
    return result
