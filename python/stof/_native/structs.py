"""stof/stof.h's structs and constants, in its order."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_char_p, c_float, c_int32, c_int64, c_size_t, c_uint32, c_void_p

FLOAT32, FLOAT16, BFLOAT16, FLOAT64, FLOAT8_E4M3, FLOAT8_E5M2, BOOL = range(7)
UINT8, INT8, UINT16, INT16, UINT32, INT32, UINT64, INT64 = range(7, 15)

#: Names as NumPy and torch spell them, by the constant above.
DTYPE_NAMES = (
    "float32",
    "float16",
    "bfloat16",
    "float64",
    "float8_e4m3fn",
    "float8_e5m2",
    "bool",
    "uint8",
    "int8",
    "uint16",
    "int16",
    "uint32",
    "int32",
    "uint64",
    "int64",
)
DTYPE_CODES = {name: code for code, name in enumerate(DTYPE_NAMES)}

ALIGNMENTS = {"top_left": 0, "bottom_right": 1}
CPU, GPU = 0, 1
DRAW_KINDS = {"pairs": 0, "tiles": 1}


class Sized(ctypes.Structure):
    """A struct that says how much of it the caller knows."""

    def __init__(self, **fields: object) -> None:
        super().__init__(**fields)
        self.struct_size = ctypes.sizeof(self)


class Tensor(Sized):
    _fields_ = [
        ("struct_size", c_uint32),
        ("dtype", c_int32),
        ("data", c_void_p),
        ("rank", c_int64),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
    ]


class ScoreShape(Sized):
    _fields_ = [
        ("struct_size", c_uint32),
        ("alignment", c_int32),
        ("batch", c_int64),
        ("num_heads", c_int64),
        ("seq_q", c_int64),
        ("seq_kv", c_int64),
    ]


class DrawOptions(Sized):
    _fields_ = [
        ("struct_size", c_uint32),
        ("reserved", c_uint32),
        ("batch", c_int64),
        ("head", c_int64),
        ("max_cells", c_int64),
    ]


class PngOptions(Sized):
    _fields_ = [
        ("struct_size", c_uint32),
        ("kind", c_int32),
        ("batch", c_int64),
        ("head", c_int64),
        ("q_begin", c_int64),
        ("q_end", c_int64),
        ("k_begin", c_int64),
        ("k_end", c_int64),
        ("max_pixels", c_int64),
        ("title", c_char_p),
    ]


class ScoreTable(Sized):
    _fields_ = [
        ("struct_size", c_uint32),
        ("dtype", c_int32),
        ("name", c_char_p),
        ("rank", c_int64),
        ("shape", POINTER(c_int64)),
    ]


class AttentionProblem(Sized):
    _fields_ = [
        ("struct_size", c_uint32),
        ("dtype", c_int32),
        ("batch", c_int64),
        ("num_heads_q", c_int64),
        ("num_heads_kv", c_int64),
        ("seq_q", c_int64),
        ("seq_kv", c_int64),
        ("head_dim_qk", c_int64),
        ("head_dim_v", c_int64),
        ("alignment", c_int32),
        ("has_scale", c_int32),
        ("scale", c_float),
        ("softcap", c_float),
        ("alibi", c_int32),
        ("bias", c_int32),
        ("sink", c_int32),
        ("return_lse", c_int32),
        ("position_buckets", c_int64),
        ("position_max_distance", c_int64),
        ("position_bidirectional", c_int32),
        ("reserved", c_int32),
        ("score_mod", c_char_p),
        ("num_score_tables", c_int64),
        ("score_tables", POINTER(ScoreTable)),
    ]


class Target(Sized):
    _fields_ = [
        ("struct_size", c_uint32),
        ("device", c_int32),
        ("ordinal", c_int32),
        ("alignment", c_int32),
        ("kernel", c_char_p),
    ]


class AttentionTensors(Sized):
    _fields_ = [
        ("struct_size", c_uint32),
        ("reserved", c_uint32),
        ("q", POINTER(Tensor)),
        ("k", POINTER(Tensor)),
        ("v", POINTER(Tensor)),
        ("out", POINTER(Tensor)),
        ("lse", POINTER(Tensor)),
        ("alibi_slopes", POINTER(Tensor)),
        ("bias", POINTER(Tensor)),
        ("sink", POINTER(Tensor)),
        ("position_bias", POINTER(Tensor)),
        ("num_score_tables", c_int64),
        ("score_tables", POINTER(POINTER(Tensor))),
    ]


class RunOptions(Sized):
    _fields_ = [
        ("struct_size", c_uint32),
        ("num_threads", c_int32),
        ("stream", c_void_p),
    ]


class GpuModel(Sized):
    _fields_ = [
        ("struct_size", c_uint32),
        ("compute_capability", c_int32),
        ("num_sms", c_int32),
        ("alignment", c_int32),
    ]


MASK = PLAN = c_void_p
_TEXT_OUT = POINTER(c_void_p)  # char**, to be released

#: Argument types of every function that returns a stof_status.
STATUS_FUNCTIONS: dict[str, list[object]] = {
    "stof_gpu_info": [_TEXT_OUT],
    "stof_mask_parse": [c_char_p, c_char_p, POINTER(MASK)],
    "stof_mask_from_json": [c_char_p, POINTER(MASK)],
    "stof_mask_dense": [POINTER(Tensor), POINTER(MASK)],
    "stof_mask_predicate": [
        c_char_p,
        c_int64,
        POINTER(c_char_p),
        POINTER(POINTER(Tensor)),
        POINTER(MASK),
    ],
    "stof_mask_and": [MASK, MASK, POINTER(MASK)],
    "stof_mask_or": [MASK, MASK, POINTER(MASK)],
    "stof_mask_not": [MASK, POINTER(MASK)],
    "stof_mask_bind": [MASK, POINTER(ScoreShape), POINTER(MASK)],
    "stof_mask_visible": [MASK, c_int64, c_int64, c_int64, c_int64, POINTER(c_int32)],
    "stof_mask_visible_keys": [
        MASK,
        c_int64,
        c_int64,
        c_int64,
        c_int64,
        c_int64,
        POINTER(c_int64),
        POINTER(c_int64),
    ],
    "stof_mask_to_dense": [MASK, POINTER(ScoreShape), POINTER(Tensor)],
    "stof_mask_to_text": [MASK, _TEXT_OUT],
    "stof_mask_to_json": [MASK, _TEXT_OUT],
    "stof_mask_describe": [MASK, _TEXT_OUT],
    "stof_mask_fingerprint": [MASK, c_char_p],
    "stof_mask_stats": [MASK, POINTER(ScoreShape), _TEXT_OUT],
    "stof_mask_draw_text": [MASK, POINTER(ScoreShape), POINTER(DrawOptions), _TEXT_OUT],
    "stof_mask_draw_png": [
        MASK,
        POINTER(ScoreShape),
        POINTER(PngOptions),
        _TEXT_OUT,
        POINTER(c_size_t),
    ],
    "stof_plan_attention": [POINTER(AttentionProblem), MASK, POINTER(Target), POINTER(PLAN)],
    "stof_plan_dense_attention": [
        POINTER(AttentionProblem),
        POINTER(Tensor),
        POINTER(Target),
        c_void_p,
        POINTER(PLAN),
    ],
    "stof_plan_varlen_attention": [
        POINTER(AttentionProblem),
        MASK,
        c_int64,
        POINTER(c_int64),
        POINTER(c_int64),
        POINTER(Target),
        POINTER(PLAN),
    ],
    "stof_plan_describe": [PLAN, _TEXT_OUT],
    "stof_plan_to_json": [PLAN, _TEXT_OUT],
    "stof_plan_run": [PLAN, POINTER(AttentionTensors), POINTER(RunOptions)],
    "stof_explain_attention": [
        POINTER(AttentionProblem),
        MASK,
        POINTER(GpuModel),
        _TEXT_OUT,
    ],
    "stof_explain_varlen_attention": [
        POINTER(AttentionProblem),
        MASK,
        c_int64,
        POINTER(c_int64),
        POINTER(c_int64),
        POINTER(GpuModel),
        _TEXT_OUT,
    ],
}
