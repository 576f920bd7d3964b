"""Text while it is being written."""

from __future__ import annotations

import ctypes
import queue
import threading
import weakref
from typing import Any, Callable, Iterator

from .._native import models_library
from .._native.structs_models import ON_TEXT
from . import at_exit
from .results import GeneratedText

_END = object()
#: How long close() waits for the token that is being computed.
_SECONDS_TO_END = 1.0


class _State:
    """What the writing thread and the reader share; the thread holds no reference to the reader, so
    that one which is dropped ends it."""

    def __init__(self) -> None:
        self.pieces: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.cancelled = ctypes.c_int32(0)
        self.ended = threading.Event()
        self.result: GeneratedText | None = None
        self.error: BaseException | None = None

    def cancel(self) -> None:
        self.cancelled.value = 1


class TextStream(Iterator[str]):
    """The pieces of a text as soon as they are certain; together they are the whole.

    The text is written on a thread of its own, ahead of the reader. Leaving a `with` block, close()
    and dropping the stream end it at the next token. `result` is the whole once all pieces have
    been read.
    """

    def __init__(self, write: Callable[[Any], GeneratedText]) -> None:
        """write(on_text) runs to the end, calling the C interface's function on_text."""
        state = self._state = _State()
        self._done = self._read = False
        at_exit.add(state.ended, state.cancel)
        threading.Thread(
            target=_write, args=(state, write), name="stof-generate", daemon=True
        ).start()
        self._finalizer = weakref.finalize(self, state.cancel)

    def __iter__(self) -> TextStream:
        return self

    def __next__(self) -> str:
        if self._done:
            raise StopIteration
        piece = self._state.pieces.get()
        if piece is not _END:
            return str(piece)
        self._done = self._read = True
        if self._state.error is not None:
            raise self._state.error
        raise StopIteration

    @property
    def result(self) -> GeneratedText | None:
        """None until all pieces have been read, and for a stream that was closed before."""
        return self._state.result if self._read else None

    def close(self) -> None:
        """Ends the writing at the next token."""
        self._done = True
        self._state.cancel()
        self._state.ended.wait(_SECONDS_TO_END)

    def __enter__(self) -> TextStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _write(state: _State, write: Callable[[Any], GeneratedText]) -> None:
    def on_text(_: Any, piece: int, num_bytes: int) -> int:
        state.pieces.put(ctypes.string_at(piece, num_bytes).decode("utf-8", "replace"))
        return int(state.cancelled.value)

    library = models_library()
    library.stof_set_cancel_flag(ctypes.byref(state.cancelled))
    try:
        state.result = write(ON_TEXT(on_text))
    except BaseException as error:  # raised where the text is read
        if not state.cancelled.value:
            state.error = error
    finally:
        library.stof_set_cancel_flag(None)
        state.ended.set()
        at_exit.remove(state.ended)
        state.pieces.put(_END)
