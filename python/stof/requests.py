"""What attention() and varlen_attention() share: checks before a plan is looked for."""

from __future__ import annotations

import dataclasses
from typing import Any

from . import layout, masks
from ._native import structs
from .arrays import adopt, framework_of, hand_back
from .errors import InvalidArgument
from .framework import Framework
from .mask import Mask
from .planning import Plan, mask_of
from .problem import ATTENTION_DTYPES, PositionBias, Problem
from .score import ScoreMod
from .values import choice

#: Of q, k and v, by their number of dimensions.
LAYOUTS = {4: "[batch, heads, seq, head_dim]", 3: "[rows, heads, head_dim]"}
_DEFAULTS = {
    name: getattr(Problem, name) for name in ("scale", "alignment", "softcap", "return_lse")
}

_EVERYTHING: Mask | None = None


def everything() -> Mask:
    global _EVERYTHING
    if _EVERYTHING is None:
        _EVERYTHING = masks.all()
    return _EVERYTHING


def check_heads(q: Any, k: Any, v: Any, rank: int, axis: int, enable_gqa: bool) -> None:
    """The shapes that decide a plan, before they do."""
    for name, array in (("q", q), ("k", k), ("v", v)):
        try:
            shape: Any = array.shape  # torch 2.4 compiles no getattr() with a default
        except AttributeError:
            shape = None
        if shape is None or len(shape) != rank:
            got = type(array).__name__ if shape is None else f"shape {list(shape)}"
            hint = ""
            if rank == 4 and shape is not None and len(shape) == 3:
                hint = (
                    "; packed sequences [rows, heads, head_dim] are stof.varlen_attention()'s; else give "
                    f"it a batch dimension: {name}[None], or a head dimension: {name}[:, None]"
                )
            elif rank == 3 and shape is not None and len(shape) == 4:
                hint = (
                    "; sequences that are not packed are stof.attention()'s, and [batch, seq, heads, "
                    f"head_dim] of one length is packed by {name}.reshape(-1, heads, head_dim)"
                )
            raise InvalidArgument(f"{name}: expected {LAYOUTS[rank]}, got {got}{hint}")
    if q.shape[axis] != k.shape[axis] and not enable_gqa:
        hint = "; pass enable_gqa=True if heads of k and v serve several of q"
        if rank == 4:
            hint += layout.hint(q.shape, k.shape)
        raise InvalidArgument(
            f"k: expected {q.shape[axis]} heads like q, got {k.shape[axis]} (q {list(q.shape)}, k "
            f"{list(k.shape)}){hint}"
        )
    if k.shape[axis] == 0 or q.shape[axis] % k.shape[axis]:
        raise InvalidArgument(
            f"k: expected a number of heads that divides q's {q.shape[axis]}, got {k.shape[axis]} (q "
            f"{list(q.shape)}, k {list(k.shape)}){layout.hint(q.shape, k.shape) if rank == 4 else ''}"
        )


def check_alike(framework: Framework, q: Any, k: Any, v: Any) -> None:
    """Arrays of one library and element type, whose extents fit; before a plan is made of them."""
    wanted = framework.dtype_code(q.dtype, "q")
    names = structs.DTYPE_NAMES
    if names[wanted] not in ATTENTION_DTYPES:
        raise InvalidArgument(
            f"q: expected dtype {', '.join(ATTENTION_DTYPES)}, got {names[wanted]}; convert q, k and v"
        )
    others = [name for name, x in (("k", k), ("v", v)) if not framework.is_one(x)]
    if others:
        given = k if "k" in others else v
        found = framework_of(given)
        kind = type(given).__name__ if found is None else f"{found.name}'s {type(given).__name__}"
        raise InvalidArgument(
            f"{', '.join(others)}: expected arrays of {framework.name} like q, got {kind}; convert "
            f"{' and '.join(others)}, or q"
        )
    expected_k = [*k.shape[:-1], q.shape[-1]]
    if q.ndim == 4:
        expected_k[0] = q.shape[0]
    expected_v = [*expected_k[:-1], v.shape[-1]]
    for name, array, expected in (("k", k, expected_k), ("v", v, expected_v)):
        if list(array.shape) != expected:
            raise InvalidArgument(
                f"{name}: expected shape {expected}, got {list(array.shape)}; the layout is "
                f"{LAYOUTS[q.ndim]}"
            )
        code = framework.dtype_code(array.dtype, name)
        if code != wanted:
            raise InvalidArgument(
                f"{name}: expected dtype {names[wanted]} like q, got {names[code]}; convert it"
            )


def position_table(position_bias: PositionBias | None) -> Any:
    """The table of a PositionBias; it must have one here."""
    if position_bias is None:
        return None
    if not isinstance(position_bias, PositionBias):
        raise InvalidArgument(
            f"position_bias: expected a stof.PositionBias, got {type(position_bias).__name__}"
        )
    if position_bias.table is None:
        raise InvalidArgument(
            "position_bias.table: expected float32 [num_buckets, heads], got none"
        )
    return position_bias.table


def adopted(*, position_bias: Any, score_mod: Any, **others: Any) -> dict[str, Any]:
    """The arguments of a call whose arrays are of other libraries, these taken by DLPack."""
    optional = (name for name in ("alibi", "bias", "sink") if others.get(name) is not None)
    for name in ("q", "k", "v", *optional):
        others[name] = adopt(others[name], name)[1]
    if isinstance(position_bias, PositionBias) and position_bias.table is not None:
        table = adopt(position_bias.table, "position_bias.table")[1]
        position_bias = dataclasses.replace(position_bias, table=table)
    score_mod = ScoreMod.of(score_mod)
    if score_mod is not None:
        tables = {name: adopt(x, name)[1] for name, x in score_mod.tables.items()}
        score_mod = ScoreMod(score_mod.text, tables)
    return dict(position_bias=position_bias, score_mod=score_mod, **others)


def handed_back(result: Any, q: Any) -> Any:
    """An array, or several, in the library of q."""
    if isinstance(result, tuple):
        return tuple(hand_back(array, q) for array in result)
    return hand_back(result, q)


class Request:
    """The options of a call of attention() or varlen_attention(): what of them decides a plan, and
    what its run is given."""

    def __init__(
        self,
        *,
        scale: float | None,
        alignment: str,
        softcap: float,
        alibi: Any,
        sink: Any,
        position_bias: PositionBias | None,
        score_mod: Any,
        return_lse: bool,
        bias: Any = None,
    ) -> None:
        choice(alignment, "alignment", structs.ALIGNMENTS)  # before it is part of a key
        self._table = None if position_bias is None else position_table(position_bias)
        self._score_mod = None if score_mod is None else ScoreMod.of(score_mod)
        self._position_bias = PositionBias.of(position_bias)  # without its table
        self._operands = dict(alibi=alibi, bias=bias, sink=sink)
        #: Those that are the same for a plan and for calls.
        self._plain = dict(scale=scale, alignment=alignment, softcap=softcap, return_lse=return_lse)

    def key(self) -> tuple[Any, ...]:
        """Equal where one plan serves."""
        position, table = self._position_bias, self._table
        return (
            *self._plain.values(),
            *(x is None for x in self._operands.values()),
            None
            if position is None or table is None
            else (
                position.num_buckets,
                position.max_distance,
                position.bidirectional,
                table.shape,
            ),
            None if self._score_mod is None else self._score_mod.declaration,
        )

    def planned(self) -> dict[str, Any]:
        """As plan() takes them."""
        return dict(
            **self._plain,
            **{name: x is not None for name, x in self._operands.items()},
            position_bias=self._position_bias,
            score_mod=self._score_mod,
        )

    def operands(self) -> dict[str, Any]:
        """As Plan.run() takes them."""
        tables = () if self._score_mod is None else tuple(self._score_mod.tables.values())
        return dict(**self._operands, position_bias=self._table, score_tables=tables)

    def check_beside(self, plan: Plan, mask: Any) -> None:
        """An option beside plan= is either its default or the plan's; nothing is dropped
        silently."""
        if not isinstance(plan, Plan):
            raise InvalidArgument(f"plan: expected a stof.Plan, got {type(plan).__name__}")
        problem = plan.problem
        asked: dict[str, Any] = dict(
            self._plain,
            score_mod=None if self._score_mod is None else self._score_mod.declaration,
        )
        if problem.position_bias is not None:  # else Plan.run() refuses the table
            asked["position_bias"] = self._position_bias
        for name, value in asked.items():
            planned = getattr(problem, name)
            if value != _DEFAULTS.get(name) and value != planned:
                raise InvalidArgument(
                    f"{name}: expected the plan's {planned!r}, or nothing beside plan=, got {value!r}; "
                    "plan again"
                )
        if mask is not None:
            given = mask_of(mask)
            if given is None or given != plan.mask:
                raise InvalidArgument(
                    f"mask: expected the plan's ({plan.mask}), or None beside plan=, got {mask!r}"
                )
