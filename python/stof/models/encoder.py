"""Encoders: texts in, vectors out."""

from __future__ import annotations

import ctypes
from typing import Any, Sequence, overload

from .._native import check, json_of, models_library, structs_models
from ..values import extent, truth
from . import native
from .arguments import (
    Masks,
    Progress,
    Texts,
    at_least_one,
    one_text,
    progress_of,
    texts_of,
    threads_of,
)
from .arrays import float32_array
from .base import Model
from .results import Encoding, FilledMask, TokenCandidate

_BATCH = 32


class EncoderModel(Model):
    """A BERT, RoBERTa, DistilBERT or ModernBERT; stof.load() makes it."""

    @property
    def hidden_size(self) -> int:
        """The length of a vector."""
        return int(self._facts["hidden_size"])

    @property
    def max_tokens(self) -> int:
        """Tokens after which the model's own limit cuts a text, special ones included."""
        return int(self._facts["max_tokens"])

    def tokenize(self, text: str, *, max_tokens: int | None = None) -> Encoding:
        """The text as the model reads it, cut at max_tokens (default: the model's own limit)."""
        model = self._opened()
        limit = at_least_one(max_tokens, "max_tokens", 0)
        arguments = (*one_text(text, "text"), limit)
        found = json_of(models_library().stof_model_tokenize, model.handle, *arguments)
        return Encoding(**found)

    def embed(
        self,
        texts: str | Sequence[str],
        *,
        mask: Any = None,
        max_tokens: int | None = None,
        batch: int = _BATCH,
        normalize: bool | None = None,
        num_threads: int | None = None,
        progress: Progress | None = None,
    ) -> Any:
        """A vector a text, pooled as the model's files say: a NumPy array, float32 [hidden_size] for
        one text, [texts, hidden_size] for a list.

        mask: a stof.Mask, its text or a boolean array, joined by & with the model's own; positions
        and lengths are those of each text in tokens. A dict gives layers and heads their own, as
        docs/masks.md has its JSON. max_tokens: longer texts are cut (default: the
        model's own limit). batch: texts of a pass, packed without padding. normalize: whether
        vectors get the length 1 (default: as the model's files say). num_threads: default all.
        progress(done, total) is called after each batch.

        Raises InvalidArgument naming the argument. Ctrl-C ends it after the batch under way.
        """
        model, given = self._opened(), texts_of(texts, "texts")
        if normalize is not None:
            truth(normalize, "normalize")
        errors: list[BaseException] = []
        options = _Options(mask, max_tokens, batch, num_threads, progress, errors, normalize)
        array, view = float32_array((given.count, self.hidden_size), "embed")

        def work() -> None:
            check(
                models_library().stof_model_embed(
                    model.handle, *given.arguments, options.pointer, ctypes.byref(view)
                )
            )

        native.run(work, errors)
        return array[0] if isinstance(texts, str) else array

    def encode_tokens(
        self,
        texts: str | Sequence[str],
        *,
        mask: Any = None,
        max_tokens: int | None = None,
        batch: int = _BATCH,
        num_threads: int | None = None,
        progress: Progress | None = None,
    ) -> Any:
        """The last hidden state of every token: a NumPy array, float32 [tokens, hidden_size], for
        one text, a list of them for a list. Arguments and errors are those of embed()."""
        model, given = self._opened(), texts_of(texts, "texts")
        errors: list[BaseException] = []
        options = _Options(mask, max_tokens, batch, num_threads, progress, errors)
        library = models_library()
        limit = options.options.max_tokens
        lengths = [
            len(json_of(library.stof_model_tokenize, model.handle, *text, limit)["ids"])
            for text in given.each()
        ]
        array, view = float32_array((sum(lengths), self.hidden_size), "encode_tokens")

        def work() -> None:
            check(
                library.stof_model_encode_tokens(
                    model.handle, *given.arguments, options.pointer, ctypes.byref(view)
                )
            )

        native.run(work, errors)
        ends = [sum(lengths[: i + 1]) for i in range(len(lengths))]
        parts = [array[end - length : end] for end, length in zip(ends, lengths)]
        return parts[0] if isinstance(texts, str) else parts

    @overload
    def fill_mask(
        self,
        texts: str,
        *,
        count: int = ...,
        mask: Any = ...,
        max_tokens: int | None = ...,
        batch: int = ...,
        num_threads: int | None = ...,
        progress: Progress | None = ...,
    ) -> list[FilledMask]: ...
    @overload
    def fill_mask(
        self,
        texts: list[str] | tuple[str, ...],
        *,
        count: int = ...,
        mask: Any = ...,
        max_tokens: int | None = ...,
        batch: int = ...,
        num_threads: int | None = ...,
        progress: Progress | None = ...,
    ) -> list[list[FilledMask]]: ...
    def fill_mask(
        self,
        texts: str | Sequence[str],
        *,
        count: int = 5,
        mask: Any = None,
        max_tokens: int | None = None,
        batch: int = _BATCH,
        num_threads: int | None = None,
        progress: Progress | None = None,
    ) -> list[FilledMask] | list[list[FilledMask]]:
        """What may stand for the mask tokens ("[MASK]", "<mask>") of a text, the `count` likeliest
        tokens each, by the checkpoint's masked-LM head. One FilledMask a mask token; a list of such
        lists for a list of texts. Other arguments are those of embed().

        Raises NotFound or Corrupt where the checkpoint has no such head, InvalidArgument for a text
        without a mask token among the tokens that are read.
        """
        model, given = self._opened(), texts_of(texts, "texts")
        wanted = extent(count, "count", 1)
        errors: list[BaseException] = []
        options = _Options(mask, max_tokens, batch, num_threads, progress, errors)
        function = models_library().stof_model_fill_mask
        found = native.run(
            lambda: json_of(function, model.handle, *given.arguments, wanted, options.pointer),
            errors,
        )
        filled = [[_filled(place) for place in places] for places in found]
        return filled[0] if isinstance(texts, str) else filled


def _filled(place: dict[str, Any]) -> FilledMask:
    return FilledMask(place["position"], [TokenCandidate(**c) for c in place["candidates"]])


class _Options:
    """stof_encode_options, and what it points to."""

    def __init__(
        self,
        mask: Any,
        max_tokens: Any,
        batch: Any,
        num_threads: Any,
        progress: Any,
        errors: list[BaseException],
        normalize: bool | None = None,
    ) -> None:
        self._masks = Masks(mask)
        self.options = structs_models.EncodeOptions(
            num_threads=threads_of(num_threads),
            **self._masks.fields,
            max_tokens=at_least_one(max_tokens, "max_tokens", 0),
            batch=extent(batch, "batch", 1),
            normalize=structs_models.NORMALIZE[normalize],
            on_progress=progress_of(progress, errors),
        )
        self.pointer = ctypes.byref(self.options)
