"""What attention() and varlen_attention() share: checks before a plan is looked for."""

from __future__ import annotations

from typing import Any

from . import masks
from .errors import InvalidArgument
from .mask import Mask
from .planning import Plan, mask_of
from .problem import PositionBias

_EVERYTHING: Mask | None = None


def everything() -> Mask:
    global _EVERYTHING
    if _EVERYTHING is None:
        _EVERYTHING = masks.all()
    return _EVERYTHING


def check_heads(q: Any, k: Any, v: Any, rank: int, axis: int, enable_gqa: bool) -> None:
    """The shapes that decide a plan, before they do."""
    for name, array in (("q", q), ("k", k), ("v", v)):
        shape = getattr(array, "shape", None)
        if shape is None or len(shape) != rank:
            layout = "[batch, heads, seq, head_dim]" if rank == 4 else "[rows, heads, head_dim]"
            got = type(array).__name__ if shape is None else f"shape {list(shape)}"
            raise InvalidArgument(f"{name}: expected {layout}, got {got}")
    if q.shape[axis] != k.shape[axis] and not enable_gqa:
        hint = "; pass enable_gqa=True if heads of k and v serve several of q"
        if rank == 4 and q.shape[2] == k.shape[2] and q.shape[1] > q.shape[2]:
            hint += "; if these are [batch, seq, heads, head_dim], pass q.transpose(1, 2) and so on"
        raise InvalidArgument(
            f"k: expected {q.shape[axis]} heads like q, got {k.shape[axis]} (q {list(q.shape)}, k "
            f"{list(k.shape)}){hint}"
        )
    if k.shape[axis] == 0 or q.shape[axis] % k.shape[axis]:
        raise InvalidArgument(
            f"k: expected a number of heads that divides q's {q.shape[axis]}, got {k.shape[axis]} (q "
            f"{list(q.shape)}, k {list(k.shape)})"
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


def position_key(position_bias: PositionBias | None) -> Any:
    """What of it decides a plan."""
    if position_bias is None:
        return None
    return (
        position_bias.num_buckets,
        position_bias.max_distance,
        position_bias.bidirectional,
        position_bias.table.shape,
    )


def check_given(plan: Plan, mask: Any, asked: dict[str, Any]) -> None:
    """An option beside plan= is either its default or the plan's; nothing is dropped silently."""
    problem = plan.problem
    defaults = dict(
        scale=None,
        alignment="top_left",
        softcap=0.0,
        return_lse=False,
        score_mod=None,
        position_bias=None,
    )
    planned = dict(
        scale=problem.scale,
        alignment=problem.alignment,
        softcap=problem.softcap,
        return_lse=problem.return_lse,
        score_mod=problem.score_mod,
        position_bias=problem.position_bias,
    )
    if problem.position_bias is None:  # Plan.run() refuses the table
        asked.pop("position_bias", None)
    else:
        asked["position_bias"] = PositionBias.of(asked.get("position_bias"))
    if asked["score_mod"] is not None:
        asked["score_mod"] = asked["score_mod"].declaration
    for name, value in asked.items():
        if value != defaults[name] and value != planned[name]:
            raise InvalidArgument(
                f"{name}: expected the plan's {planned[name]!r}, or nothing beside plan=, got {value!r}; "
                "plan again"
            )
    if mask is not None:
        given = mask_of(mask)
        if given is None or given != plan.mask:
            raise InvalidArgument(
                f"mask: expected the plan's ({plan.mask}), or None beside plan=, got {mask!r}"
            )
