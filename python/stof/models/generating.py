"""What the models that write texts share."""

from __future__ import annotations

import ctypes
from typing import Any

from .._native import check, encoded, json_of, models_library, structs_models
from .._native.structs_models import ON_TEXT
from ..errors import InvalidArgument
from ..values import extent, items, number, seed_of, wholes
from . import native
from .arguments import Masks, Texts, one_text, threads_of
from .results import Encoding, GeneratedText

MAX_TOKENS = 256
#: Of models that read a text at once.
_AT_ONCE = object()


def tokenized(model: native.NativeModel, text: str) -> Encoding:
    arguments = one_text(text, "text")
    found = json_of(models_library().stof_model_tokenize, model.handle, *arguments, 0)
    return Encoding(**found)


def detokenized(model: native.NativeModel, ids: Any) -> str:
    given = ids_of(ids)
    pointer, size = ctypes.c_void_p(), ctypes.c_int64()
    library = models_library()
    check(
        library.stof_model_detokenize(
            model.handle, *given, ctypes.byref(pointer), ctypes.byref(size)
        )
    )
    try:
        return ctypes.string_at(pointer.value or 0, size.value).decode("utf-8", "replace")
    finally:
        library.stof_text_release(pointer)


def ids_of(ids: Any, name: str = "ids") -> tuple[int, Any]:
    numbers = wholes(ids, name)
    for i, value in enumerate(numbers):
        if not 0 <= value < 1 << 31:
            raise InvalidArgument(f"{name}[{i}]: expected a token's number, got {value}")
    return len(numbers), (ctypes.c_int32 * len(numbers))(*numbers)


def generated(
    model: native.NativeModel, prompts: Texts, given: Options, on_text: Any = None
) -> list[GeneratedText]:
    options = given.native(on_text)
    function = models_library().stof_model_generate
    found = json_of(function, model.handle, *prompts.arguments, ctypes.byref(options))
    return [GeneratedText(**text) for text in found]


class Options:
    """Options that were checked; those whose default in the C interface is 0 are not 0 here."""

    def __init__(
        self,
        max_tokens: Any,
        temperature: Any,
        top_k: Any,
        top_p: Any,
        seed: Any,
        stop: Any,
        mask: Any,
        num_threads: Any,
        prefill_chunk: Any = _AT_ONCE,
    ) -> None:
        share = number(top_p, "top_p")
        if not 0 < share <= 1:
            raise InvalidArgument(f"top_p: expected more than 0 and at most 1, got {top_p!r}")
        stops = [stop] if isinstance(stop, str) else items(stop, "stop", "texts")
        self._stop = [encoded(text, f"stop[{i}]") for i, text in enumerate(stops)]
        self._masks = Masks(mask)
        self._fields: dict[str, Any] = dict(
            num_threads=threads_of(num_threads),
            **self._masks.fields,
            max_tokens=extent(max_tokens, "max_tokens", 1),
            temperature=number(temperature, "temperature"),
            top_k=0 if top_k is None else extent(top_k, "top_k", 1),
            top_p=share,
            seed=seed_of(seed),
            num_stop=len(self._stop),
            stop=(ctypes.c_char_p * len(self._stop))(*self._stop),
            prefill_chunk=0
            if prefill_chunk is _AT_ONCE
            else extent(prefill_chunk, "prefill_chunk", 1),
        )

    def native(self, on_text: Any = None) -> structs_models.GenerateOptions:
        return structs_models.GenerateOptions(
            **self._fields, on_text=ON_TEXT(0) if on_text is None else on_text
        )
