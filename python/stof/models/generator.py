"""Generators: a prompt in, text that continues it out."""

from __future__ import annotations

import ctypes
from typing import Any, Literal, Mapping, Sequence, overload

from .._native import check, encoded, json_of, models_library, structs_models, text_of
from .._native.structs_models import ON_TEXT
from ..errors import InvalidArgument
from ..values import extent, items, number, seed_of, truth, wholes
from . import native
from .arguments import Masks, Texts, one_text, threads_of
from .arrays import float32_array
from .base import Model
from .results import Encoding, GeneratedText
from .stream import TextStream

_MAX_TOKENS, _PREFILL_CHUNK = 256, 512


class TextGenerator(Model):
    """A LLaMA, Mistral, Qwen 2, SmolLM or GPT-2; stof.load() makes it."""

    @property
    def vocab_size(self) -> int:
        return int(self._facts["vocab_size"])

    @property
    def max_positions(self) -> int:
        """How many tokens a prompt and its answer together may have."""
        return int(self._facts["max_positions"])

    def tokenize(self, text: str) -> Encoding:
        """The text as the model reads it; nothing is cut."""
        model = self._opened()
        arguments = one_text(text, "text")
        found = json_of(models_library().stof_model_tokenize, model.handle, *arguments, 0)
        return Encoding(**found)

    def detokenize(self, ids: Sequence[int]) -> str:
        """The text of tokens, special ones left out; what is not UTF-8 becomes U+FFFD. Raises
        InvalidArgument on an id that no token has."""
        model, given = self._opened(), _ids(ids)
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

    def chat_prompt(self, messages: str | Sequence[Mapping[str, str]]) -> str:
        """The prompt by which an instruct model answers the last of `messages`, each {"role":
        "system", "user" or "assistant", "content": text}; a text alone is what the user says.
        Special tokens that a content spells are taken as such.

        Raises Unsupported for a chat template that is not known, or where the model has none.
        """
        model = self._opened()
        turns = [{"role": "user", "content": messages}] if isinstance(messages, str) else messages
        given = items(turns, "messages", 'objects {"role", "content"}')
        native_messages = (structs_models.ChatMessage * len(given))()
        for i, turn in enumerate(given):
            if not isinstance(turn, Mapping) or set(turn) != {"role", "content"}:
                raise InvalidArgument(
                    f'messages[{i}]: expected {{"role": ..., "content": ...}}, got {turn!r}'
                )
            native_messages[i] = structs_models.ChatMessage(
                role=encoded(turn["role"], f"messages[{i}].role"),
                content=encoded(turn["content"], f"messages[{i}].content"),
            )
        return text_of(
            models_library().stof_model_chat_prompt, model.handle, len(given), native_messages
        )

    @overload
    def generate(
        self,
        prompt: str,
        *,
        stream: Literal[False] = ...,
        max_tokens: int = ...,
        temperature: float = ...,
        top_k: int | None = ...,
        top_p: float = ...,
        seed: int = ...,
        stop: str | Sequence[str] = ...,
        mask: Any = ...,
        prefill_chunk: int = ...,
        num_threads: int | None = ...,
    ) -> str: ...
    @overload
    def generate(
        self,
        prompt: str,
        *,
        stream: Literal[True],
        max_tokens: int = ...,
        temperature: float = ...,
        top_k: int | None = ...,
        top_p: float = ...,
        seed: int = ...,
        stop: str | Sequence[str] = ...,
        mask: Any = ...,
        prefill_chunk: int = ...,
        num_threads: int | None = ...,
    ) -> TextStream: ...
    def generate(
        self,
        prompt: str,
        *,
        stream: bool = False,
        max_tokens: int = _MAX_TOKENS,
        temperature: float = 0.0,
        top_k: int | None = None,
        top_p: float = 1.0,
        seed: int = 0,
        stop: str | Sequence[str] = (),
        mask: Any = None,
        prefill_chunk: int = _PREFILL_CHUNK,
        num_threads: int | None = None,
    ) -> str | TextStream:
        """The text that continues the prompt; with stream=True an iterator of its pieces
        (stof.TextStream), written while they are read.

        max_tokens: at most so many are written. temperature: 0 takes the likeliest token, always;
        else tokens are drawn by `seed`, among the top_k likeliest (default: all), and of these among
        the likeliest that make up the probability top_p. stop: the text ends before the first of
        these. mask: a stof.Mask, its text or a boolean array, joined by & with the model's own
        (causal, and its window where it has one), or a dict of layers' masks as docs/masks.md has its
        JSON; positions are those of prompt and answer together.
        prefill_chunk: tokens of the prompt that are read at once. num_threads: default all.

        generate_all() also tells why a text ended, its ids and times. Raises InvalidArgument naming
        the argument, or where the prompt has no token or more than max_positions. Ctrl-C ends it at
        the next token.
        """
        model = self._opened()
        given = _Options(
            max_tokens, temperature, top_k, top_p, seed, stop, mask, prefill_chunk, num_threads
        )
        if not isinstance(prompt, str):
            raise InvalidArgument(
                f"prompt: expected text, got {type(prompt).__name__}; generate_all() takes a list"
            )
        texts = Texts([prompt], "prompt")
        if truth(stream, "stream"):
            return TextStream(lambda on_text: _generate(model, texts, given, on_text)[0])
        return native.run(lambda: _generate(model, texts, given))[0].text

    def generate_all(
        self,
        prompts: Sequence[str],
        *,
        max_tokens: int = _MAX_TOKENS,
        temperature: float = 0.0,
        top_k: int | None = None,
        top_p: float = 1.0,
        seed: int = 0,
        stop: str | Sequence[str] = (),
        mask: Any = None,
        prefill_chunk: int = _PREFILL_CHUNK,
        num_threads: int | None = None,
    ) -> list[GeneratedText]:
        """The same of several prompts of any lengths, side by side: a pass reads a token of each, or
        chunks of several one behind the other, without padding. Each text is the one that generate()
        writes, but for roundings."""
        model = self._opened()
        given = _Options(
            max_tokens, temperature, top_k, top_p, seed, stop, mask, prefill_chunk, num_threads
        )
        if isinstance(prompts, (str, bytes)):
            raise InvalidArgument(
                f"prompts: expected a list of texts, got {prompts!r}; generate() takes one text"
            )
        texts = Texts(items(prompts, "prompts", "texts"), "prompts")
        return native.run(lambda: _generate(model, texts, given))

    def logits(
        self,
        ids: Sequence[int],
        *,
        mask: Any = None,
        prefill_chunk: int = _PREFILL_CHUNK,
        num_threads: int | None = None,
    ) -> Any:
        """What the model expects after each token: a NumPy array, float32 [tokens, vocab_size]."""
        model, given = self._opened(), _ids(ids)
        options = _Options(
            _MAX_TOKENS, 0.0, None, 1.0, 0, (), mask, prefill_chunk, num_threads
        )
        array, view = float32_array((given[0], self.vocab_size), "logits")
        function = models_library().stof_model_logits

        def work() -> None:
            check(
                function(
                    model.handle, *given, ctypes.byref(options.native()), ctypes.byref(view)
                )
            )

        native.run(work)
        return array


def _ids(ids: Any) -> tuple[int, Any]:
    numbers = wholes(ids, "ids")
    for i, value in enumerate(numbers):
        if not 0 <= value < 1 << 31:
            raise InvalidArgument(f"ids[{i}]: expected a token's number, got {value}")
    return len(numbers), (ctypes.c_int32 * len(numbers))(*numbers)


def _generate(
    model: native.NativeModel, prompts: Texts, given: _Options, on_text: Any = None
) -> list[GeneratedText]:
    options = given.native(on_text)
    function = models_library().stof_model_generate
    found = json_of(function, model.handle, *prompts.arguments, ctypes.byref(options))
    return [GeneratedText(**text) for text in found]


class _Options:
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
        prefill_chunk: Any,
        num_threads: Any,
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
            prefill_chunk=extent(prefill_chunk, "prefill_chunk", 1),
        )

    def native(self, on_text: Any = None) -> structs_models.GenerateOptions:
        return structs_models.GenerateOptions(
            **self._fields, on_text=ON_TEXT(0) if on_text is None else on_text
        )
