"""Calls that are still running when the interpreter ends.

A thread that comes back to Python from the library then is ended by Python where it is, inside of the
library's frames, which ends the process. So calls that may call back are waited for.
"""

from __future__ import annotations

import atexit
import threading
import time
from typing import Callable

#: For all of them; a pass of a model is shorter.
_SECONDS = 30.0

_running: dict[threading.Event, Callable[[], None]] = {}


def add(ended: threading.Event, cancel: Callable[[], None]) -> None:
    """Has the call which will set `ended` cancelled and waited for at the end, unless it has ended."""
    _running[ended] = cancel


def remove(ended: threading.Event) -> None:
    _running.pop(ended, None)


@atexit.register
def _end() -> None:
    calls = list(_running.items())
    for _, cancel in calls:
        cancel()
    until = time.monotonic() + _SECONDS
    for ended, _ in calls:
        ended.wait(max(0.0, until - time.monotonic()))


def after_fork() -> None:
    """In a child, which has none of these threads."""
    _running.clear()
