"""stof.load()."""

from __future__ import annotations

import os
from typing import Any

from .._native import encoded, structs, structs_models
from ..arrays import dtype_code
from ..errors import InternalError, InvalidArgument, Unsupported
from ..values import choice, path_of
from . import native
from .base import Model
from .encoder import EncoderModel
from .generator import TextGenerator
from .images import ImageClassifier
from .seq2seq import Seq2SeqGenerator

_CLASSES: dict[str, type[Model]] = {
    "encoder": EncoderModel,
    "generator": TextGenerator,
    "image classifier": ImageClassifier,
    "seq2seq generator": Seq2SeqGenerator,
}


def load(path: Any, *, device: Any = "cpu", dtype: Any = None, tuning: str = "cached") -> Any:
    """Reads a model, as it is: a Hugging Face folder or a .gguf file.

    Returns a stof.EncoderModel (BERT, RoBERTa, DistilBERT, ModernBERT), a stof.TextGenerator
    (LLaMA, Mistral, Qwen 2, Gemma 3, SmolLM, GPT-2, GGUF files), a stof.Seq2SeqGenerator (T5) or a
    stof.ImageClassifier (ViT); docs/models.md says what of a folder is read. For checkers of types and where only one kind will do there is
    EncoderModel.load() and so on.

    device: "cpu", "cuda", or "auto", which takes a GPU where all that the model needs is there
    (model.place says what it came to, model.place_note why not a GPU). dtype: what is computed in,
    "float32" on the CPU, "float16" or "bfloat16" on a GPU; by default what suits the device. tuning:
    "cached" uses what `stof tune` found for the model on this machine, "off" does not.

    Raises NotFound, Corrupt or Unsupported naming file, field or tensor, what was expected and got,
    on a GPU also what of it is missing; InvalidArgument naming the argument.
    """
    where = _device(device)
    asked = None if dtype is None else dtype_code(dtype)
    words = choice(tuning, "tuning", structs_models.TUNINGS)
    options = structs_models.LoadOptions(
        device=structs_models.DEVICES[where],
        has_dtype=0 if asked is None else 1,
        dtype=asked or 0,
        tuning=structs_models.TUNINGS[words],
    )
    place = os.path.abspath(path_of(path, "path"))
    name = encoded(place, "path")
    opened = native.run(lambda: native.load(name, options))
    kind = native.facts(opened)["kind"]
    if kind not in _CLASSES:
        raise InternalError(f"{place}: expected a kind of model that is known, got {kind}")
    given = None if asked is None else structs.DTYPE_NAMES[asked]
    return _CLASSES[kind](opened, place, dict(device=where, dtype=given, tuning=words))


def _again(path: str, options: dict[str, Any]) -> Any:
    """What a pickled model becomes."""
    return load(path, **options)


def _device(device: Any) -> str:
    kind, _, ordinal = str(device).partition(":")
    if kind not in structs_models.DEVICES or (ordinal and (kind != "cuda" or not ordinal.isdecimal())):
        raise InvalidArgument(
            f'device: expected "cpu", "cuda", "auto" or a torch.device, got {device!r}'
        )
    if ordinal and int(ordinal) != 0:
        raise Unsupported(
            f'device: expected "cuda", the first GPU that the process sees, got {str(device)!r}; '
            "choose another by the environment's CUDA_VISIBLE_DEVICES"
        )
    return kind
