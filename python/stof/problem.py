"""What a plan is made for: shapes, element type and options, without addresses."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ._native import encoded, structs
from .arrays import dtype_code, framework_of, int64_array, shape_of
from .errors import InvalidArgument
from .values import choice, extent, number, truth, whole
from .score import Declaration, ScoreMod

_FLOAT32_MAX = (2 - 2.0**-23) * 2.0**127
_FLOAT32_MIN = 2.0**-126  # the smallest normal one
ATTENTION_DTYPES = ("float32", "float16", "bfloat16")


@dataclass(frozen=True)
class PositionBias:
    """T5's learned bias per head for buckets of distances (Raffel et al. 2020, arXiv 1910.10683,
    §2.1).

    A plan needs num_buckets; a call needs the table, float32 [num_buckets, num_heads], which gives
    num_buckets where that is not said.
    """

    num_buckets: int = 0
    max_distance: int = 128
    bidirectional: bool = True
    table: Any = None

    @staticmethod
    def of(value: Any) -> PositionBias | None:
        """The argument position_bias of plan() and attention() as one of these, with
        num_buckets."""
        if value is None:
            return None
        if not isinstance(value, PositionBias):
            raise InvalidArgument(
                "position_bias: expected a stof.PositionBias, which says how distances fall into "
                f"buckets, got {type(value).__name__}; pass stof.PositionBias(table=...)"
            )
        buckets = whole(value.num_buckets, "position_bias.num_buckets")
        distance = whole(value.max_distance, "position_bias.max_distance")
        if value.table is not None:
            buckets = int(rows_of_table(value.table, buckets))
        if buckets <= 0:
            raise InvalidArgument(
                f"position_bias.num_buckets: expected at least 2, got {buckets}; give it or the table"
            )
        return PositionBias(buckets, distance, value.bidirectional)

    def __post_init__(self) -> None:
        truth(self.bidirectional, "position_bias.bidirectional")


def rows_of_table(table: Any, num_buckets: int) -> int:
    """Rows of a PositionBias's table, which are num_buckets unless that is 0, not said."""
    extents = shape_of(table)
    if extents is None or len(extents) != 2 or (num_buckets and extents[0] != num_buckets):
        got = type(table).__name__ if extents is None else list(extents)
        raise InvalidArgument(
            f"position_bias.table: expected shape [{num_buckets or 'num_buckets'}, num_heads], got "
            f"{got}"
        )
    return extents[0]


def _number(value: Any, name: str) -> float:
    framework = None if isinstance(value, (int, float)) else framework_of(value)
    if framework is not None:
        framework.check_operands({name: value})
    found = number(value, name)
    if not math.isfinite(found):
        raise InvalidArgument(f"{name}: expected a finite number, got {found}")
    if abs(found) > _FLOAT32_MAX:
        raise InvalidArgument(f"{name}: expected a number that float32 can hold, got {found}")
    return found


def scale_and_softcap(scale: Any, softcap: Any) -> tuple[float | None, float]:
    """As numbers, where callers may give tensors of one element, whose values may change."""
    return None if scale is None else _number(scale, "scale"), _number(softcap, "softcap")


def but(arguments: dict[str, Any], *names: str) -> dict[str, Any]:
    """A function's locals() at its beginning, without those names."""
    return {name: value for name, value in arguments.items() if name not in names}


def flag(value: Any, name: str) -> bool:
    if not isinstance(value, bool):
        raise InvalidArgument(
            f"{name}: expected True or False, whether calls will bring one, got {type(value).__name__}; "
            f"the values go to Plan.run({name}=...)"
        )
    return value


@dataclass(frozen=True)
class Problem:
    """Validated. Packed sequences have batch, seq_q and seq_kv 0, and cumulative lengths."""

    dtype: int
    batch: int
    num_heads: int
    num_heads_kv: int
    seq_q: int
    seq_kv: int
    head_dim: int
    head_dim_v: int
    alignment: str = "top_left"
    scale: float | None = None
    softcap: float = 0.0
    alibi: bool = False
    bias: bool = False
    sink: bool = False
    position_bias: PositionBias | None = None
    return_lse: bool = False
    score_mod: Declaration | None = None
    cu_seqlens_q: tuple[int, ...] | None = None
    cu_seqlens_kv: tuple[int, ...] | None = None

    @staticmethod
    def make(
        *,
        batch: Any,
        num_heads: Any,
        seq_q: Any,
        head_dim: Any,
        dtype: Any,
        num_heads_kv: Any = None,
        seq_kv: Any = None,
        head_dim_v: Any = None,
        scale: Any = None,
        softcap: Any = 0.0,
        alibi: Any = False,
        bias: Any = False,
        sink: Any = False,
        position_bias: Any = None,
        return_lse: Any = False,
        alignment: str = "top_left",
        score_mod: Any = None,
        cu_seqlens_q: tuple[int, ...] | None = None,
        cu_seqlens_kv: tuple[int, ...] | None = None,
    ) -> Problem:
        """Of arguments as plan() takes them."""
        code = dtype_code(dtype)
        if structs.DTYPE_NAMES[code] not in ATTENTION_DTYPES:
            raise InvalidArgument(
                f"dtype: expected float32, float16 or bfloat16, got {structs.DTYPE_NAMES[code]}"
            )
        heads = extent(num_heads, "num_heads", 1)
        heads_kv = heads if num_heads_kv is None else extent(num_heads_kv, "num_heads_kv", 1)
        if heads % heads_kv:
            raise InvalidArgument(
                f"num_heads_kv: expected a divisor of num_heads = {heads}, got {heads_kv}"
            )
        choice(alignment, "alignment", structs.ALIGNMENTS)
        packed = cu_seqlens_q is not None
        least = 0 if packed else 1
        width = extent(head_dim, "head_dim", 1)
        length = extent(seq_q, "seq_q", 0)
        scaled = None if scale is None else _number(scale, "scale")
        if scaled is not None and scaled < 0:
            raise InvalidArgument(
                f"scale: expected a number of at least 0, or None for 1/sqrt(head_dim), got {scaled}; "
                "negate q instead"
            )
        cap = _number(softcap, "softcap")
        if cap < 0:
            raise InvalidArgument(f"softcap: expected at least 0 (0 is none), got {cap}")
        if 0 < cap < _FLOAT32_MIN:  # float32 would make it 0, which means none
            raise InvalidArgument(
                f"softcap: expected 0 (none) or at least {_FLOAT32_MIN}, float32's smallest normal "
                f"number, got {cap}"
            )
        modified = ScoreMod.of(score_mod)
        return Problem(
            dtype=code,
            batch=extent(batch, "batch", least),
            num_heads=heads,
            num_heads_kv=heads_kv,
            seq_q=length,
            seq_kv=length if seq_kv is None else extent(seq_kv, "seq_kv", 0),
            head_dim=width,
            head_dim_v=width if head_dim_v is None else extent(head_dim_v, "head_dim_v", 1),
            alignment=alignment,
            scale=scaled,
            softcap=cap,
            alibi=flag(alibi, "alibi"),
            bias=flag(bias, "bias"),
            sink=flag(sink, "sink"),
            position_bias=PositionBias.of(position_bias),
            return_lse=truth(return_lse, "return_lse"),
            score_mod=None if modified is None else modified.declaration,
            cu_seqlens_q=cu_seqlens_q,
            cu_seqlens_kv=cu_seqlens_kv,
        )

    @property
    def dtype_name(self) -> str:
        return structs.DTYPE_NAMES[self.dtype]

    @property
    def packed(self) -> bool:
        return self.cu_seqlens_q is not None

    def native(self) -> structs.AttentionProblem:
        """A stof_attention_problem; it keeps what it points to alive."""
        given = structs.AttentionProblem(
            dtype=self.dtype,
            batch=self.batch,
            num_heads_q=self.num_heads,
            num_heads_kv=self.num_heads_kv,
            seq_q=self.seq_q,
            seq_kv=self.seq_kv,
            head_dim_qk=self.head_dim,
            head_dim_v=self.head_dim_v,
            alignment=structs.ALIGNMENTS[self.alignment],
            has_scale=self.scale is not None,
            scale=self.scale or 0.0,
            softcap=self.softcap,
            alibi=self.alibi,
            bias=self.bias,
            sink=self.sink,
            return_lse=self.return_lse,
        )
        if self.position_bias is not None:
            given.position_buckets = self.position_bias.num_buckets
            given.position_max_distance = self.position_bias.max_distance
            given.position_bidirectional = self.position_bias.bidirectional
        if self.score_mod is not None:
            text, tables = self.score_mod
            given.score_mod = encoded(text, "score_mod")
            if tables:  # else the pointer must be null
                given.num_score_tables = len(tables)
                given.score_tables = (structs.ScoreTable * len(tables))(
                    *(
                        structs.ScoreTable(
                            dtype=dtype,
                            name=encoded(name, "score_mod"),
                            rank=len(shape),
                            shape=int64_array(shape),
                        )
                        for name, dtype, shape in tables
                    )
                )
        return given

    # --- the operands' shapes ------------------------------------------------------------------

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of q, k, v, out and lse."""
        if self.cu_seqlens_q is not None and self.cu_seqlens_kv is not None:
            rows_q, rows_kv = self.cu_seqlens_q[-1], self.cu_seqlens_kv[-1]
            return {
                "q": (rows_q, self.num_heads, self.head_dim),
                "k": (rows_kv, self.num_heads_kv, self.head_dim),
                "v": (rows_kv, self.num_heads_kv, self.head_dim_v),
                "out": (rows_q, self.num_heads, self.head_dim_v),
                "lse": (self.num_heads, rows_q),
            }
        return {
            "q": (self.batch, self.num_heads, self.seq_q, self.head_dim),
            "k": (self.batch, self.num_heads_kv, self.seq_kv, self.head_dim),
            "v": (self.batch, self.num_heads_kv, self.seq_kv, self.head_dim_v),
            "out": (self.batch, self.num_heads, self.seq_q, self.head_dim_v),
            "lse": (self.batch, self.num_heads, self.seq_q),
        }
