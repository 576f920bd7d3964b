"""stof.attention, stof.varlen_attention and Plan.run while torch records operators.

Everything here is traced by torch.compile itself: plain Python on attributes, no call into the
library.
"""

from __future__ import annotations

from typing import Any, Sequence

import torch

from ..errors import InvalidArgument, Unsupported
from . import operators
from .autocast import lowered


def _operands(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Where gradients are off nothing requires any; torch 2.4 does not tell operators that they are."""
    if torch.is_grad_enabled():
        return tensors
    return tuple(x.detach() if x.requires_grad else x for x in tensors)


def mask_text(mask: Any) -> str:
    """What an operator is given for a mask: text stays, an object gives its name."""
    if mask is None:
        return ""
    return mask if isinstance(mask, str) else mask._name


def _shape_problem(q: torch.Tensor, k: torch.Tensor, enable_gqa: bool) -> None:
    if not enable_gqa and q.dim() == 4 and k.dim() == 4 and q.shape[1] != k.shape[1]:
        raise InvalidArgument(
            f"k: expected {q.shape[1]} heads as q has, got {k.shape[1]}; pass enable_gqa=True "
            "where heads of q share those of k and v"
        )


def _position(position_bias: Any) -> tuple[Any, int, bool]:
    if position_bias is None:
        return None, 0, True
    if position_bias.table is None:
        raise InvalidArgument("position_bias.table: expected a tensor, got None")
    return position_bias.table, position_bias.max_distance, position_bias.bidirectional


def _modification(score_mod: Any) -> tuple[str, str, list[torch.Tensor]]:
    """A ScoreMod, text or None as its text, the names of its tables, and these."""
    if score_mod is None:
        return "", "", []
    if isinstance(score_mod, str):
        return score_mod, "", []
    return score_mod.text, ",".join(list(score_mod.tables)), list(score_mod.tables.values())


def run(
    plan: Any,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    out: torch.Tensor | None = None,
    lse: torch.Tensor | None = None,
    alibi: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    sink: torch.Tensor | None = None,
    position_bias: torch.Tensor | None = None,
    score_tables: Sequence[torch.Tensor] = (),
    stream: Any = None,
    num_threads: int = 0,
) -> Any:
    """Plan.run, recorded."""
    if num_threads:
        raise Unsupported(
            "num_threads: expected 0 while torch records operators, since what it recorded runs "
            f"on all of torch's cores, got {num_threads}"
        )
    if stream is not None:
        raise Unsupported(
            "stream: expected None while torch records operators, since what it recorded runs on "
            "the stream that is current then; use torch.cuda.stream() around the call"
        )
    q, k, v = _operands(q, k, v)
    result, sums = operators.run(
        plan._name, q, k, v, alibi, bias, sink, position_bias, list(score_tables)
    )
    if out is not None:
        result = out.copy_(result)
    if not plan._returns_lse:
        return result
    return result, sums if lse is None else lse.copy_(sums)


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: Any = None,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
    alignment: str = "top_left",
    softcap: float = 0.0,
    alibi: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    sink: torch.Tensor | None = None,
    position_bias: Any = None,
    score_mod: Any = None,
    return_lse: bool = False,
    plan: Any = None,
    bound: torch.Tensor | None = None,
    also: Any = None,
    start: torch.Tensor | None = None,
    q_offset: int = 0,
    kv_offset: int = 0,
) -> Any:
    """stof.attention, recorded.

    `bound` is a result of torch.ops.stof.mask_from_values and takes the place of `mask`; `also` is
    a mask that must let a pair through too; the offsets (with `start`, a tensor of one integer,
    added to q's) say at which positions of the masks the first query and key stand.
    """
    if plan is not None:
        raise Unsupported(
            "plan: expected None while torch records operators, got a plan; call plan.run(q, k, "
            "v) there"
        )
    _shape_problem(q, k, enable_gqa)
    q, k, v = _operands(*lowered(q, k, v))
    table, max_distance, bidirectional = _position(position_bias)
    result, lse = operators.attention(
        q,
        k,
        v,
        mask_text(mask),
        bound,
        mask_text(also),
        start,
        q_offset,
        kv_offset,
        alignment,
        scale,
        softcap,
        alibi,
        bias,
        sink,
        table,
        max_distance,
        bidirectional,
        *_modification(score_mod),
        return_lse,
    )
    return (result, lse) if return_lse else result


def varlen_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_kv: torch.Tensor,
    mask: Any = None,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
    alignment: str = "top_left",
    softcap: float = 0.0,
    alibi: torch.Tensor | None = None,
    sink: torch.Tensor | None = None,
    position_bias: Any = None,
    return_lse: bool = False,
) -> Any:
    """stof.varlen_attention, recorded. The lengths are read when the operator runs."""
    q, k, v = _operands(*lowered(q, k, v))
    table, max_distance, bidirectional = _position(position_bias)
    result, lse = operators.varlen_attention(
        q,
        k,
        v,
        cu_seqlens_q,
        cu_seqlens_kv,
        mask_text(mask),
        alignment,
        scale,
        softcap,
        alibi,
        sink,
        table,
        max_distance,
        bidirectional,
        return_lse,
    )
    return (result, lse) if return_lse else result
