"""Locks that a forked child finds open, whoever held them in its parent."""

from __future__ import annotations

import threading
import weakref

_owners: weakref.WeakSet[Locked] = weakref.WeakSet()


class Locked:
    """An object with a lock: `with self._lock`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        _owners.add(self)


def after_fork() -> None:
    """In a child, which has this thread only: others' locks would never open."""
    for owner in list(_owners):
        owner._lock = threading.Lock()
