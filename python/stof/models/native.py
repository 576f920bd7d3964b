"""A model of the C interface, and calls of it that Ctrl-C ends."""

from __future__ import annotations

import ctypes
import threading
from typing import Any, Callable, TypeVar

from .._native import check, json_of, models_library
from ..interrupts import interruptible
from . import at_exit

_Result = TypeVar("_Result")


class NativeModel:
    """Owns a stof_model. Calls hold it, so that a model which is closed meanwhile stays until they
    have ended."""

    __slots__ = ("handle", "_release")

    def __init__(self, handle: int) -> None:
        self.handle = handle
        self._release = models_library().stof_model_release

    def __del__(self) -> None:
        self._release(self.handle)


def load(path: bytes, options: Any) -> NativeModel:
    handle = ctypes.c_void_p()
    check(models_library().stof_model_load(path, ctypes.byref(options), ctypes.byref(handle)))
    assert handle.value is not None
    return NativeModel(handle.value)


def run(work: Callable[[], _Result], errors: list[BaseException] | None = None) -> _Result:
    """work(), which Ctrl-C ends after the pass of the model that is under way. What callbacks put
    into `errors` is raised in place of the error that they caused."""
    ended = threading.Event()

    def tracked() -> _Result:
        try:
            return work()
        finally:
            ended.set()
            at_exit.remove(ended)

    try:
        return interruptible(tracked)
    except BaseException:
        if not ended.is_set():  # interrupted, and cancelled
            at_exit.add(ended, lambda: None)
        if errors:
            raise errors[0]
        raise


def facts(model: NativeModel) -> dict[str, Any]:
    found: dict[str, Any] = json_of(models_library().stof_model_to_json, model.handle)
    return found
