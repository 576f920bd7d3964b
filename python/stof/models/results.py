"""What models answer."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Encoding:
    """A text as a model reads it: with what its tokenizer puts around every text.

    ids and tokens have one entry a token, tokens as the vocabulary spells them ("\u0120the").
    truncated: the text was cut at the model's limit.
    """

    ids: list[int]
    tokens: list[str]
    truncated: bool

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True)
class TokenCandidate:
    """A token that may stand where a text has a mask: as the vocabulary spells it ("\u0120the"), as
    it stands in a text (" the"), its probability among all tokens."""

    id: int
    token: str
    text: str
    probability: float


@dataclass(frozen=True)
class FilledMask:
    """One mask token of a text: its position among the text's tokens, and what may stand there,
    likeliest first."""

    position: int
    candidates: list[TokenCandidate]


@dataclass(frozen=True)
class GeneratedText:
    """A text that continues a prompt. Prints as the text.

    text: without the prompt, special tokens and the stop string. ids: all that were chosen, an end
    token included. stopped_by: "end token", "stop string", "token limit" or "no further positions".
    Seconds are wall time of reading the prompts and of writing, of all prompts of a call together.
    """

    text: str
    ids: list[int]
    stopped_by: str
    prompt_tokens: int
    prefill_seconds: float
    decode_seconds: float

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Seq2SeqTask:
    """What a model was trained for: its name ("translation_en_to_de"), what stands in front of the text
    ("translate English to German: "), and how many tokens are written at most; None: the files do not
    say."""

    name: str
    prefix: str
    max_tokens: int | None


@dataclass(frozen=True)
class ImageLabel:
    """What an image may show, with its probability among all labels."""

    id: int
    label: str
    probability: float
