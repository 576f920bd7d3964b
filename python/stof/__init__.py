"""Masked (sparse) attention that is fast because what no query sees is never computed, and models
of it.

``stof.attention(q, k, v, mask)`` takes NumPy arrays and torch tensors, on the CPU and on NVIDIA
GPUs. ``stof.masks`` has the masks, ``stof.plan`` prepares a call once. ``stof.load(path)`` reads a model:
embeddings, generated text, labels of images. docs/python.md tells more.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from . import locks, masks
from ._native import library
from .attention import attention
from .cache import CacheInfo, cache_clear, cache_info
from .block_lists import BlockListPlan
from .decode import DecodePlan
from .errors import (
    Corrupt,
    CudaError,
    InternalError,
    InvalidArgument,
    IoError,
    JitError,
    NoSuchMethod,
    NotFound,
    OutOfMemory,
    StofError,
    Unsupported,
)
from .explain import Explanation, explain, gpu_info
from .mask import Mask
from .planning import Plan, _after_fork, plan
from .problem import PositionBias
from .score import ScoreMod
from .varlen import varlen_attention, varlen_plan

if TYPE_CHECKING:
    from .models import (
        EncoderModel,
        Encoding,
        FilledMask,
        GeneratedText,
        ImageClassifier,
        ImageLabel,
        Model,
        Seq2SeqGenerator,
        Seq2SeqTask,
        TextGenerator,
        TextStream,
        TokenCandidate,
        load,
    )

#: Of stof.models, which is imported when one of them is first asked for.
_OF_MODELS = (
    "EncoderModel",
    "Encoding",
    "FilledMask",
    "GeneratedText",
    "ImageClassifier",
    "ImageLabel",
    "Model",
    "Seq2SeqGenerator",
    "Seq2SeqTask",
    "TextGenerator",
    "TextStream",
    "TokenCandidate",
    "load",
)

__version__: str = library().stof_version().decode()

# The library makes its table of masks when it first meets one. A child forked while another thread
# is at it would wait for ever for that thread, which it does not have; so it is made now.
masks.causal()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
    os.register_at_fork(after_in_child=locks.after_fork)

__all__ = [
    "BlockListPlan",
    "CacheInfo",
    "Corrupt",
    "CudaError",
    "DecodePlan",
    "EncoderModel",
    "Encoding",
    "Explanation",
    "FilledMask",
    "GeneratedText",
    "ImageClassifier",
    "ImageLabel",
    "InternalError",
    "InvalidArgument",
    "IoError",
    "JitError",
    "Mask",
    "Model",
    "NoSuchMethod",
    "NotFound",
    "OutOfMemory",
    "Plan",
    "PositionBias",
    "ScoreMod",
    "Seq2SeqGenerator",
    "Seq2SeqTask",
    "StofError",
    "TextGenerator",
    "TextStream",
    "TokenCandidate",
    "Unsupported",
    "__version__",
    "attention",
    "cache_clear",
    "cache_info",
    "explain",
    "gpu_info",
    "load",
    "masks",
    "plan",
    "varlen_attention",
    "varlen_plan",
]


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    """Models' names, which are imported late; of others that there are none, and what serves."""
    if name in _OF_MODELS:
        from . import models

        value = globals()[name] = getattr(models, name)
        return value
    hint = ""
    if name in masks.__all__:
        hint = f"; did you mean stof.masks.{name}?"
    elif name in ("scaled_dot_product_attention", "flash_attn_func", "sdpa"):
        hint = "; use stof.attention(q, k, v, mask)"
    elif name in ("flash_attn_varlen_func", "attention_varlen"):
        hint = "; use stof.varlen_attention(q, k, v, cu_seqlens_q, cu_seqlens_kv, mask)"
    elif name in ("flex_attention", "create_block_mask"):
        hint = f"; use stof.compat.flex.{name}"
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}{hint}")
