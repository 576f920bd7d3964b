"""Arguments of models as the C interface takes them."""

from __future__ import annotations

import ctypes
import json
from typing import Any, Callable, Sequence

from .. import masks
from .._native import encoded, structs
from .._native.structs_models import PROGRESS
from ..arrays import adopt
from ..errors import InvalidArgument
from ..framework import CPU
from ..mask import Mask
from ..planning import Plan
from ..values import extent, items

Progress = Callable[[int, int], object]


class Texts:
    """Several texts, and the memory that the library reads them from."""

    def __init__(self, texts: Sequence[str], name: str) -> None:
        encoded = [_utf8(text, f"{name}[{i}]") for i, text in enumerate(texts)]
        self.count = len(encoded)
        self.arguments = (
            self.count,
            (ctypes.c_char_p * self.count)(*encoded),
            (ctypes.c_int64 * self.count)(*map(len, encoded)),
        )
        self._encoded = encoded

    def each(self) -> list[tuple[bytes, int]]:
        """As one_text() has them."""
        return [(text, len(text)) for text in self._encoded]


def _utf8(text: Any, name: str) -> bytes:
    if not isinstance(text, str):
        raise InvalidArgument(f"{name}: expected text, got {text!r}")
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgument(f"{name}: expected text that UTF-8 can write, got {error}") from None


def one_text(text: Any, name: str) -> tuple[bytes, int]:
    """Its bytes and how many these are."""
    encoded = _utf8(text, name)
    return encoded, len(encoded)


def texts_of(given: Any, name: str) -> Texts:
    """Of a text, or of a list of them."""
    if isinstance(given, str):
        return Texts([given], name)
    if isinstance(given, (bytes, dict)):
        raise InvalidArgument(f"{name}: expected a text or a list of texts, got {given!r}")
    return Texts(items(given, name, "texts"), name)


class Masks:
    """A mask of a Mask, its text, a boolean array [seq, seq] or None; or masks of layers and heads,
    of a dict as docs/masks.md has its JSON, whose masks may be Mask objects."""

    def __init__(self, mask: Any) -> None:
        self._kept: Mask | None = None
        #: Of the C interface's options.
        self.fields: dict[str, Any] = {}
        if mask is None:
            return
        if isinstance(mask, dict):
            self.fields = {"mask_set": _json_of(mask)}
            return
        if isinstance(mask, str):
            mask = masks.parse(mask)
        elif not isinstance(mask, Mask):
            mask = _dense(mask)
        self._kept = mask
        self.fields = {"mask": mask._handle}


def _json_of(mask: dict[str, Any]) -> bytes:
    def text(value: Any) -> str:
        if isinstance(value, Mask):
            return value.to_text()
        raise TypeError(f"{type(value).__name__}")

    try:
        return encoded(json.dumps(mask, default=text), "mask")
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgument(
            'mask: expected {"default": mask, "rules": [{"layers", "heads", "mask"}, ...]} of texts, '
            f"numbers and stof.Mask objects, got {mask!r}: {error}"
        ) from None


def _dense(mask: Any) -> Mask:
    try:
        framework, array = adopt(mask, "mask")
    except InvalidArgument:
        name = str(getattr(mask, "__name__", ""))
        known = name and getattr(masks, name, None) is mask
        raise InvalidArgument(
            "mask: expected a stof.Mask, its text, a boolean array, a dict of layers' or None, got "
            f"{type(mask).__name__}{f'; call it: stof.masks.{name}(...)' if known else ''}"
        ) from None
    view = framework.view(array, "mask")
    if view.dtype != structs.BOOL or view.device != CPU:
        raise InvalidArgument(
            "mask: expected booleans in host memory (true is visible), got "
            f"{view.dtype_name} {list(view.shape)} on {view.device}"
        )
    return masks.dense(array)


def at_least_one(value: Any, name: str, default: int) -> int:
    """A number that None leaves at its default; 0, the C interface's default, is refused."""
    return default if value is None else extent(value, name, 1)


def threads_of(num_threads: Any) -> int:
    """None is all cores; a forked child computes on the calling thread."""
    asked = 0 if num_threads is None else extent(num_threads, "num_threads", 1)
    if asked >= 1 << 31:
        raise InvalidArgument(f"num_threads: expected a whole number of 32 bits, got {asked}")
    return Plan.threads_of(asked)


def progress_of(progress: Any, errors: list[BaseException]) -> Any:
    """The C interface's function for a Python one; what that raises goes to `errors` and ends the
    call."""
    if progress is None:
        return PROGRESS(0)
    if not callable(progress):
        raise InvalidArgument(f"progress: expected a function or None, got {progress!r}")

    def report(_: Any, done: int, total: int) -> int:
        try:
            progress(done, total)
        except BaseException as error:  # raised again where the call was made
            errors.append(error)
            return 1
        return 0

    return PROGRESS(report)
