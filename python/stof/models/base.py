"""What all models have in common."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from ..errors import InvalidArgument, NoSuchMethod, Unsupported
from .native import NativeModel, facts

#: Which models have the methods that not all have.
_METHODS = {
    "embed": ("EncoderModel",),
    "encode_tokens": ("EncoderModel",),
    "fill_mask": ("EncoderModel",),
    "tokenize": ("EncoderModel", "TextGenerator", "Seq2SeqGenerator"),
    "detokenize": ("TextGenerator", "Seq2SeqGenerator"),
    "generate": ("TextGenerator", "Seq2SeqGenerator"),
    "generate_all": ("TextGenerator", "Seq2SeqGenerator"),
    "translate": ("Seq2SeqGenerator",),
    "summarise": ("Seq2SeqGenerator",),
    "translation": ("Seq2SeqGenerator",),
    "encode": ("Seq2SeqGenerator",),
    "chat_prompt": ("TextGenerator",),
    "logits": ("TextGenerator", "Seq2SeqGenerator"),
    "classify": ("ImageClassifier",),
    "pixels": ("ImageClassifier",),
}
#: What these hold, in words.
KINDS = {
    "EncoderModel": "BERT, RoBERTa, DistilBERT, ModernBERT",
    "TextGenerator": "LLaMA, Mistral, Qwen 2, Gemma 3, SmolLM, GPT-2, GGUF files",
    "Seq2SeqGenerator": "T5, FLAN-T5, mT5",
    "ImageClassifier": "ViT",
}


_Kind = TypeVar("_Kind", bound="Model")


def _described(kind: str) -> str:
    return f"stof.{kind} ({KINDS[kind]})" if kind in KINDS else f"stof.{kind}"


class Model:
    """A model that stof.load() has read: an EncoderModel, TextGenerator, Seq2SeqGenerator or
    ImageClassifier.

    Immutable: threads may share it. As a context manager, or by close(), it gives its memory back
    when the last call that uses it has ended; later calls raise InvalidArgument. Pickled as its path
    and options, and read again where it is loaded; a forked child computes on one thread, and loads
    models of a GPU anew.
    """

    def __init__(self, native: NativeModel, path: str, options: dict[str, Any]) -> None:
        self._native: NativeModel | None = native
        self._options = options
        #: The folder or file that it was read from.
        self.path = path
        self._facts = facts(native)

    @classmethod
    def load(
        cls: type[_Kind], path: Any, *, device: Any = "cpu", dtype: Any = None, tuning: str = "cached"
    ) -> _Kind:
        """As stof.load(), where only this kind of model will do. Raises Unsupported for another."""
        from .loading import load

        model = load(path, device=device, dtype=dtype, tuning=tuning)
        if not isinstance(model, cls):
            raise Unsupported(
                f"{model.path}: expected a {_described(cls.__name__)}, got a "
                f"stof.{type(model).__name__}; stof.load() takes all"
            )
        return model

    # --- what it is ------------------------------------------------------------------------------

    @property
    def description(self) -> str:
        """Family and sizes, in one line."""
        return str(self._facts["description"])

    @property
    def place(self) -> str:
        """Where and in what it computes: "CPU, float32", "NVIDIA H200, bfloat16"."""
        return str(self._facts["place"])

    @property
    def place_note(self) -> str:
        """Why device="auto" did not take the GPU that the machine has; else empty."""
        return str(self._facts["place_note"])

    @property
    def num_layers(self) -> int:
        return int(self._facts["num_layers"])

    @property
    def num_heads(self) -> int:
        return int(self._facts["num_heads"])

    def __repr__(self) -> str:
        state = "closed" if self.closed else self.place
        return f"<stof.{type(self).__name__} {Path(self.path).name}: {self.description}; {state}>"

    def __getattr__(self, name: str) -> Any:
        """No more methods: one that other models have is refused with their names."""
        if name not in _METHODS:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        having = " or ".join(map(_described, _METHODS[name]))
        raise NoSuchMethod(
            f"{name}: expected a model that has it, {having}, got a stof.{type(self).__name__} of "
            f"{self.path}"
        )

    # --- its life --------------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        return self._native is None

    def close(self) -> None:
        """Gives the memory back once no call uses it any more; closing twice does nothing."""
        self._native = None

    def __enter__(self) -> Any:
        self._opened()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        from .loading import _again

        return _again, (self.path, self._options)

    def _opened(self) -> NativeModel:
        native = self._native
        if native is None:
            raise InvalidArgument(
                f"model: expected one that is open, got {self.path}, which was closed; load it again"
            )
        return native
