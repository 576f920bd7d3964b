"""Seq2seq generators: a text in, another out."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from typing import Any, Literal, Sequence, overload

from .._native import check, encoded, json_of, models_library
from ..errors import InvalidArgument
from ..values import items, truth
from . import native
from .arguments import Texts
from .arrays import float32_array
from .base import Model
from .generating import MAX_TOKENS, Options, detokenized, generated, ids_of, tokenized
from .results import Encoding, GeneratedText, Seq2SeqTask
from .stream import TextStream


class Seq2SeqGenerator(Model):
    """A T5, FLAN-T5 or mT5; stof.load() makes it. Masks are over the tokens of the text that is read."""

    @property
    def vocab_size(self) -> int:
        return int(self._facts["vocab_size"])

    @property
    def hidden_size(self) -> int:
        """The length of the encoder's vectors."""
        return int(self._facts["hidden_size"])

    @property
    def num_decoder_layers(self) -> int:
        """num_layers are the encoder's."""
        return int(self._facts["num_decoder_layers"])

    @property
    def tasks(self) -> list[Seq2SeqTask]:
        """What the model's files say that it was trained for."""
        return [_task(fields) for fields in self._facts["tasks"]]

    def tokenize(self, text: str) -> Encoding:
        """The text as the model reads it, with the end token behind it; nothing is cut."""
        return tokenized(self._opened(), text)

    def detokenize(self, ids: Sequence[int]) -> str:
        """The text of tokens, special ones left out; what is not UTF-8 becomes U+FFFD. Raises
        InvalidArgument on an id that no token has."""
        return detokenized(self._opened(), ids)

    def translation(self, source: str, target: str) -> Seq2SeqTask:
        """The task of translating between languages, of English names ("German") or codes ("de"): the
        model's own, else T5's words for it. Raises InvalidArgument for a code that is not known."""
        return self._find_task(encoded(source, "source"), encoded(target, "target"))

    @property
    def summary(self) -> Seq2SeqTask:
        """The task of summarising: the model's own, else T5's words for it."""
        return self._find_task(None, None)

    def _find_task(self, source: bytes | None, target: bytes | None) -> Seq2SeqTask:
        found = json_of(models_library().stof_model_task, self._opened().handle, source, target)
        return _task(found)

    @overload
    def translate(  # type: ignore[overload-overlap]  # a text is a sequence of texts, too
        self, texts: str, *, source: str, target: str, max_tokens: int | None = ...,
        mask: Any = ..., num_threads: int | None = ...,
    ) -> str: ...  # fmt: skip
    @overload
    def translate(
        self, texts: Sequence[str], *, source: str, target: str, max_tokens: int | None = ...,
        mask: Any = ..., num_threads: int | None = ...,
    ) -> list[str]: ...  # fmt: skip
    def translate(
        self,
        texts: str | Sequence[str],
        *,
        source: str,
        target: str,
        max_tokens: int | None = None,
        mask: Any = None,
        num_threads: int | None = None,
    ) -> str | list[str]:
        """A text, or several side by side, from one language to another: generate_all() of them behind
        the prefix of translation(source, target). max_tokens: by default the task's, else 256."""
        task = self.translation(source, target)
        found = self._transformed(texts, task, max_tokens, mask, num_threads)
        return found[0] if isinstance(texts, str) else found

    @overload
    def summarise(  # type: ignore[overload-overlap]  # a text is a sequence of texts, too
        self, texts: str, *, max_tokens: int | None = ..., mask: Any = ...,
        num_threads: int | None = ...,
    ) -> str: ...  # fmt: skip
    @overload
    def summarise(
        self, texts: Sequence[str], *, max_tokens: int | None = ..., mask: Any = ...,
        num_threads: int | None = ...,
    ) -> list[str]: ...  # fmt: skip
    def summarise(
        self,
        texts: str | Sequence[str],
        *,
        max_tokens: int | None = None,
        mask: Any = None,
        num_threads: int | None = None,
    ) -> str | list[str]:
        """The same for what is shorter and says what matters, behind the prefix of `summary`."""
        found = self._transformed(texts, self.summary, max_tokens, mask, num_threads)
        return found[0] if isinstance(texts, str) else found

    def _transformed(
        self, texts: Any, task: Seq2SeqTask, max_tokens: Any, mask: Any, num_threads: Any
    ) -> list[str]:
        given = [texts] if isinstance(texts, str) else items(texts, "texts", "texts")
        for i, text in enumerate(given):
            if not isinstance(text, str):
                raise InvalidArgument(f"texts[{i}]: expected text, got {text!r}")
        most = (task.max_tokens or MAX_TOKENS) if max_tokens is None else max_tokens
        written = self.generate_all(
            [task.prefix + text for text in given],
            max_tokens=most,
            mask=mask,
            num_threads=num_threads,
        )
        return [result.text for result in written]

    @overload
    def generate(
        self,
        text: str,
        *,
        stream: Literal[False] = ...,
        max_tokens: int = ...,
        temperature: float = ...,
        top_k: int | None = ...,
        top_p: float = ...,
        seed: int = ...,
        stop: str | Sequence[str] = ...,
        mask: Any = ...,
        num_threads: int | None = ...,
    ) -> str: ...
    @overload
    def generate(
        self,
        text: str,
        *,
        stream: Literal[True],
        max_tokens: int = ...,
        temperature: float = ...,
        top_k: int | None = ...,
        top_p: float = ...,
        seed: int = ...,
        stop: str | Sequence[str] = ...,
        mask: Any = ...,
        num_threads: int | None = ...,
    ) -> TextStream: ...
    def generate(
        self,
        text: str,
        *,
        stream: bool = False,
        max_tokens: int = MAX_TOKENS,
        temperature: float = 0.0,
        top_k: int | None = None,
        top_p: float = 1.0,
        seed: int = 0,
        stop: str | Sequence[str] = (),
        mask: Any = None,
        num_threads: int | None = None,
    ) -> str | TextStream:
        """What the model makes of the text as it stands: a task's prefix is the caller's. Arguments
        and stream=True as of TextGenerator.generate(), but for the mask: it is over the tokens of the
        text that is read, each of which else sees all."""
        model = self._opened()
        given = Options(max_tokens, temperature, top_k, top_p, seed, stop, mask, num_threads)
        if not isinstance(text, str):
            raise InvalidArgument(
                f"text: expected text, got {type(text).__name__}; generate_all() takes a list"
            )
        texts = Texts([text], "text")
        if truth(stream, "stream"):
            return TextStream(lambda on_text: generated(model, texts, given, on_text)[0])
        return native.run(lambda: generated(model, texts, given))[0].text

    def generate_all(
        self,
        texts: Sequence[str],
        *,
        max_tokens: int = MAX_TOKENS,
        temperature: float = 0.0,
        top_k: int | None = None,
        top_p: float = 1.0,
        seed: int = 0,
        stop: str | Sequence[str] = (),
        mask: Any = None,
        num_threads: int | None = None,
    ) -> list[GeneratedText]:
        """The same of several texts of any lengths, side by side, without padding; each is the one that
        generate() writes, but for roundings."""
        model = self._opened()
        given = Options(max_tokens, temperature, top_k, top_p, seed, stop, mask, num_threads)
        if isinstance(texts, (str, bytes)):
            raise InvalidArgument(
                f"texts: expected a list of texts, got {texts!r}; generate() takes one text"
            )
        several = Texts(items(texts, "texts", "texts"), "texts")
        return native.run(lambda: generated(model, several, given))

    def encode(self, ids: Sequence[int], *, mask: Any = None, num_threads: int | None = None) -> Any:
        """What the encoder makes of each token: a NumPy array, float32 [tokens, hidden_size]."""
        model, given = self._opened(), ids_of(ids)
        array, view = float32_array((given[0], self.hidden_size), "encode")
        options = Options(MAX_TOKENS, 0.0, None, 1.0, 0, (), mask, num_threads)
        function = models_library().stof_model_encode_ids

        def work() -> None:
            check(
                function(
                    model.handle, *given, ctypes.byref(options.native()), ctypes.byref(view)
                )
            )

        native.run(work)
        return array

    def logits(
        self,
        ids: Sequence[int],
        written: Sequence[int] = (),
        *,
        mask: Any = None,
        num_threads: int | None = None,
    ) -> Any:
        """What the decoder expects for the text `ids` first, and after each token of `written`: a NumPy
        array, float32 [written + 1, vocab_size]."""
        model, given, after = self._opened(), ids_of(ids), ids_of(written, "written")
        array, view = float32_array((after[0] + 1, self.vocab_size), "logits")
        options = Options(MAX_TOKENS, 0.0, None, 1.0, 0, (), mask, num_threads)
        function = models_library().stof_model_seq2seq_logits

        def work() -> None:
            check(
                function(
                    model.handle,
                    *given,
                    *after,
                    ctypes.byref(options.native()),
                    ctypes.byref(view),
                )
            )

        native.run(work)
        return array


def _task(fields: dict[str, Any]) -> Seq2SeqTask:
    """0 tokens are none that the files say."""
    task = Seq2SeqTask(**fields)
    return task if task.max_tokens else replace(task, max_tokens=None)
