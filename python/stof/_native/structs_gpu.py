"""stof/stof.h's structs and functions of plans that only GPUs run."""

from __future__ import annotations

from ctypes import POINTER, c_double, c_float, c_int32, c_int64, c_uint32, c_void_p

from .structs import AttentionProblem, AttentionTensors, MASK, Sized, Target, Tensor


class BlockListShape(Sized):
    _fields_ = [
        ("struct_size", c_uint32),
        ("per_kv_head", c_int32),
        ("block_q", c_int64),
        ("block_kv", c_int64),
        ("max_blocks", c_int64),
        ("expected_share", c_double),
        ("key_block_sizes", POINTER(c_int64)),
        ("num_key_block_sizes", c_int64),
    ]


class DecodeProblem(Sized):
    _fields_ = [
        ("struct_size", c_uint32),
        ("dtype", c_int32),
        ("batch", c_int64),
        ("num_heads_q", c_int64),
        ("num_heads_kv", c_int64),
        ("seq_q", c_int64),
        ("max_seq_kv", c_int64),
        ("head_dim_qk", c_int64),
        ("head_dim_v", c_int64),
        ("page_size", c_int64),
        ("lengths", c_int32),
        ("no_causal", c_int32),
        ("window_right", c_int64),
        ("has_window_left", c_int32),
        ("has_scale", c_int32),
        ("window_left", c_int64),
        ("sink_tokens", c_int64),
        ("scale", c_float),
        ("softcap", c_float),
        ("alibi", c_int32),
        ("sink", c_int32),
        ("return_lse", c_int32),
        ("reserved", c_int32),
    ]


class DecodeTensors(Sized):
    _fields_ = [
        ("struct_size", c_uint32),
        ("reserved", c_uint32),
        ("q", POINTER(Tensor)),
        ("k", POINTER(Tensor)),
        ("v", POINTER(Tensor)),
        ("out", POINTER(Tensor)),
        ("lse", POINTER(Tensor)),
        ("lengths", POINTER(Tensor)),
        ("page_table", POINTER(Tensor)),
        ("alibi_slopes", POINTER(Tensor)),
        ("sink", POINTER(Tensor)),
    ]


_PLAN = c_void_p
_TEXT_OUT = POINTER(c_void_p)

#: As structs.STATUS_FUNCTIONS.
STATUS_FUNCTIONS: dict[str, list[object]] = {
    "stof_plan_block_lists": [
        POINTER(AttentionProblem),
        POINTER(BlockListShape),
        POINTER(Target),
        POINTER(_PLAN),
    ],
    "stof_block_list_plan_to_json": [_PLAN, _TEXT_OUT],
    "stof_block_list_plan_update": [_PLAN, POINTER(Tensor), POINTER(Tensor), c_void_p],
    "stof_block_list_plan_run": [_PLAN, POINTER(AttentionTensors), c_void_p],
    "stof_block_list_plan_check": [_PLAN, c_void_p],
    "stof_plan_decode": [POINTER(DecodeProblem), MASK, POINTER(Target), POINTER(_PLAN)],
    "stof_decode_plan_to_json": [_PLAN, _TEXT_OUT],
    "stof_decode_plan_run": [_PLAN, POINTER(DecodeTensors), c_void_p],
}

#: Functions that free a plan.
RELEASES = ("stof_block_list_plan_release", "stof_decode_plan_release")
