"""stof/models.h's structs, constants and functions, in its order."""

from __future__ import annotations

import ctypes
from ctypes import (
    CFUNCTYPE,
    POINTER,
    c_char_p,
    c_double,
    c_int32,
    c_int64,
    c_uint32,
    c_uint64,
    c_void_p,
)

from .structs import MASK, Sized, Tensor

MODEL = c_void_p
DEVICES = {"cpu": 0, "cuda": 1, "auto": 2}
TUNINGS = {"cached": 0, "off": 1}
#: Of embeddings: as the model's files say, yes, no.
NORMALIZE = {None: 0, True: 1, False: 2}

#: (context, done, total) and (context, piece, its bytes); other than 0 ends the call.
PROGRESS = CFUNCTYPE(c_int32, c_void_p, c_int64, c_int64)
ON_TEXT = CFUNCTYPE(c_int32, c_void_p, c_void_p, c_int64)


class LoadOptions(Sized):
    _fields_ = [
        ("struct_size", c_uint32),
        ("device", c_int32),
        ("has_dtype", c_int32),
        ("dtype", c_int32),
        ("tuning", c_int32),
        ("reserved", c_int32),
    ]


class EncodeOptions(Sized):
    _fields_ = [
        ("struct_size", c_uint32),
        ("num_threads", c_int32),
        ("mask", MASK),
        ("mask_set", c_char_p),
        ("max_tokens", c_int64),
        ("batch", c_int64),
        ("normalize", c_int32),
        ("reserved", c_int32),
        ("on_progress", PROGRESS),
        ("context", c_void_p),
    ]


class GenerateOptions(Sized):
    _fields_ = [
        ("struct_size", c_uint32),
        ("num_threads", c_int32),
        ("mask", MASK),
        ("mask_set", c_char_p),
        ("max_tokens", c_int64),
        ("temperature", c_double),
        ("top_k", c_int64),
        ("top_p", c_double),
        ("seed", c_uint64),
        ("num_stop", c_int64),
        ("stop", POINTER(c_char_p)),
        ("prefill_chunk", c_int64),
        ("on_text", ON_TEXT),
        ("context", c_void_p),
    ]


class ChatMessage(Sized):
    _fields_ = [
        ("struct_size", c_uint32),
        ("reserved", c_uint32),
        ("role", c_char_p),
        ("content", c_char_p),
    ]


class ClassifyOptions(Sized):
    _fields_ = [
        ("struct_size", c_uint32),
        ("num_threads", c_int32),
        ("mask", MASK),
        ("mask_set", c_char_p),
        ("count", c_int64),
        ("batch", c_int64),
        ("on_progress", PROGRESS),
        ("context", c_void_p),
    ]


_TEXT_OUT = POINTER(c_void_p)
_TEXTS = (c_int64, POINTER(c_char_p), POINTER(c_int64))
_IDS = (c_int64, POINTER(c_int32))

STATUS_FUNCTIONS: dict[str, list[object]] = {
    "stof_model_load": [c_char_p, POINTER(LoadOptions), POINTER(MODEL)],
    "stof_model_to_json": [MODEL, _TEXT_OUT],
    "stof_model_tokenize": [MODEL, c_char_p, c_int64, c_int64, _TEXT_OUT],
    "stof_model_embed": [MODEL, *_TEXTS, POINTER(EncodeOptions), POINTER(Tensor)],
    "stof_model_encode_tokens": [MODEL, *_TEXTS, POINTER(EncodeOptions), POINTER(Tensor)],
    "stof_model_fill_mask": [MODEL, *_TEXTS, c_int64, POINTER(EncodeOptions), _TEXT_OUT],
    "stof_model_generate": [MODEL, *_TEXTS, POINTER(GenerateOptions), _TEXT_OUT],
    "stof_model_logits": [MODEL, *_IDS, POINTER(GenerateOptions), POINTER(Tensor)],
    "stof_model_detokenize": [MODEL, *_IDS, _TEXT_OUT, POINTER(c_int64)],
    "stof_model_task": [MODEL, c_char_p, c_char_p, _TEXT_OUT],
    "stof_model_encode_ids": [MODEL, *_IDS, POINTER(GenerateOptions), POINTER(Tensor)],
    "stof_model_seq2seq_logits": [MODEL, *_IDS, *_IDS, POINTER(GenerateOptions), POINTER(Tensor)],
    "stof_model_chat_prompt": [MODEL, c_int64, POINTER(ChatMessage), _TEXT_OUT],
    "stof_model_classify_files": [
        MODEL,
        c_int64,
        POINTER(c_char_p),
        POINTER(ClassifyOptions),
        _TEXT_OUT,
    ],
    "stof_model_classify": [MODEL, POINTER(Tensor), POINTER(ClassifyOptions), _TEXT_OUT],
    "stof_model_pixels": [MODEL, POINTER(Tensor), POINTER(Tensor)],
}


def declare(library: ctypes.CDLL) -> None:
    """Raises AttributeError for a function that the library lacks."""
    for name, arguments in STATUS_FUNCTIONS.items():
        function = getattr(library, name)
        function.argtypes = arguments
        function.restype = c_int32
    library.stof_model_release.argtypes = [MODEL]
    library.stof_model_release.restype = None
