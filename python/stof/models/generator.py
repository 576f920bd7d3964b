"""Generators: a prompt in, text that continues it out."""

from __future__ import annotations

import ctypes
from typing import Any, Literal, Mapping, Sequence, overload

from .._native import check, encoded, models_library, structs_models, text_of
from ..errors import InvalidArgument
from ..values import items, truth
from . import native
from .arguments import Texts
from .arrays import float32_array
from .base import Model
from .generating import MAX_TOKENS, Options, detokenized, generated, ids_of, tokenized
from .results import Encoding, GeneratedText
from .stream import TextStream

_PREFILL_CHUNK = 512


class TextGenerator(Model):
    """A LLaMA, Mistral, Qwen 2, Gemma 3, SmolLM or GPT-2; stof.load() makes it."""

    @property
    def vocab_size(self) -> int:
        return int(self._facts["vocab_size"])

    @property
    def max_positions(self) -> int:
        """How many tokens a prompt and its answer together may have."""
        return int(self._facts["max_positions"])

    def tokenize(self, text: str) -> Encoding:
        """The text as the model reads it; nothing is cut."""
        return tokenized(self._opened(), text)

    def detokenize(self, ids: Sequence[int]) -> str:
        """The text of tokens, special ones left out; what is not UTF-8 becomes U+FFFD. Raises
        InvalidArgument on an id that no token has."""
        return detokenized(self._opened(), ids)

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
        max_tokens: int = MAX_TOKENS,
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
        given = Options(
            max_tokens, temperature, top_k, top_p, seed, stop, mask, num_threads, prefill_chunk
        )
        if not isinstance(prompt, str):
            raise InvalidArgument(
                f"prompt: expected text, got {type(prompt).__name__}; generate_all() takes a list"
            )
        texts = Texts([prompt], "prompt")
        if truth(stream, "stream"):
            return TextStream(lambda on_text: generated(model, texts, given, on_text)[0])
        return native.run(lambda: generated(model, texts, given))[0].text

    def generate_all(
        self,
        prompts: Sequence[str],
        *,
        max_tokens: int = MAX_TOKENS,
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
        given = Options(
            max_tokens, temperature, top_k, top_p, seed, stop, mask, num_threads, prefill_chunk
        )
        if isinstance(prompts, (str, bytes)):
            raise InvalidArgument(
                f"prompts: expected a list of texts, got {prompts!r}; generate() takes one text"
            )
        texts = Texts(items(prompts, "prompts", "texts"), "prompts")
        return native.run(lambda: generated(model, texts, given))

    def logits(
        self,
        ids: Sequence[int],
        *,
        mask: Any = None,
        prefill_chunk: int = _PREFILL_CHUNK,
        num_threads: int | None = None,
    ) -> Any:
        """What the model expects after each token: a NumPy array, float32 [tokens, vocab_size]."""
        model, given = self._opened(), ids_of(ids)
        options = Options(
            MAX_TOKENS, 0.0, None, 1.0, 0, (), mask, num_threads, prefill_chunk
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
