"""The operators: what torch records, what they compute, and the shapes they promise.

Each returns (out, lse); lse is empty where it was not asked for. Optional operands are None where
there are none, as are masks and score_mod. A text `mask` is one of docs/masks.md, or a name of
stof.identity.
"""

from __future__ import annotations

from typing import Any, List, Optional, Tuple

import torch
from torch import Tensor
from torch.library import custom_op

from .. import identity
from ..errors import InvalidArgument, Unsupported
from ..requests import LAYOUTS
from ..torch_arrays import NO_GRADIENTS
from . import resolved

Result = Tuple[Tensor, Tensor]

#: What callers call an operator's argument.
_CALLERS_NAMES = {"position_table": "position_bias.table", "tables": "mask_function"}


def _pair(result: Any, return_lse: bool, like: Tensor) -> Result:
    if return_lse:
        out, lse = result
        return out, lse
    return result, like.new_empty((0,), dtype=torch.float32)


def operator(name: str, schema: str) -> Any:
    """Registers an operator; `schema` is its own without the first parenthesis. (torch 2.4 cannot
    read text arguments off annotations.)"""
    return custom_op(f"stof::{name}", mutates_args=(), schema="(" + schema)


def _plain(*tensors: Tensor) -> Tuple[Tensor, ...]:
    """Without subclasses, which stof.attention would record again."""
    plain = (Tensor, torch.nn.Parameter)
    return tuple(t if type(t) in plain else t.as_subclass(Tensor) for t in tensors)


def _promised(q: Tensor, v: Tensor, return_lse: bool, lse_shape: Any) -> Result:
    out = q.new_empty((*q.shape[:-1], v.shape[-1]))
    return out, q.new_empty(lse_shape if return_lse else (0,), dtype=torch.float32)


def _expect_rank(rank: int, **tensors: Tensor) -> None:
    for name, tensor in tensors.items():
        if tensor.dim() != rank:
            raise InvalidArgument(
                f"{name}: expected {LAYOUTS[rank]}, got shape {list(tensor.shape)}"
            )


def _refuse_gradients(op: Any) -> None:
    """Asking for a gradient is an error before anybody sees a result, and when compiling, since
    tracing asks for one."""

    arguments = [a.name for a in op._opoverload._schema.arguments]

    def asks(given) -> bool:
        if isinstance(given, (list, tuple)):
            return any(asks(one) for one in given)
        return isinstance(given, Tensor) and given.requires_grad

    def refuse(ctx, inputs, output):
        names = [name for name, given in zip(arguments, inputs) if asks(given)]
        if names:  # torch 2.4 always asks
            shown = ", ".join(_CALLERS_NAMES.get(name, name) for name in names)
            raise Unsupported(f"{shown}: {NO_GRADIENTS}")

    def backward(ctx, *gradients):
        raise Unsupported(f"q, k, v: {NO_GRADIENTS}")

    op.register_autograd(backward, setup_context=refuse)


# --- a plan that exists ---------------------------------------------------------------------------


@operator(
    "run",
    "str plan, Tensor q, Tensor k, Tensor v, Tensor? alibi, Tensor? bias, Tensor? sink, "
    "Tensor? position_bias, Tensor[] score_tables) -> (Tensor, Tensor)",
)
def run(
    plan: str,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    alibi: Optional[Tensor],
    bias: Optional[Tensor],
    sink: Optional[Tensor],
    position_bias: Optional[Tensor],
    score_tables: List[Tensor],
) -> Tuple[Tensor, Tensor]:
    found = identity.find(plan, "plan")
    result = found.run(
        *_plain(q, k, v),
        alibi=alibi,
        bias=bias,
        sink=sink,
        position_bias=position_bias,
        score_tables=tuple(score_tables),
    )
    return _pair(result, found._returns_lse, q)


@run.register_fake
def _(plan, q, k, v, alibi, bias, sink, position_bias, score_tables):
    found = identity.find(plan, "plan")
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        expected = found.problem.shapes()[name]
        if tuple(tensor.shape) != expected:
            raise InvalidArgument(
                f"{name}: expected shape {list(expected)}, got {list(tensor.shape)}; plan again "
                "for other shapes"
            )
    lse = (*q.shape[:-1],) if q.dim() == 4 else (q.shape[1], q.shape[0])
    return _promised(q, v, found._returns_lse, lse)


_refuse_gradients(run)


# --- a plan for the shapes that come --------------------------------------------------------------


@operator(
    "attention",
    "Tensor q, Tensor k, Tensor v, str? mask, Tensor? bound, str? also, Tensor? start, "
    "SymInt q_offset, SymInt kv_offset, str alignment, float? scale, float softcap, Tensor? alibi, "
    "Tensor? bias, Tensor? sink, Tensor? position_table, SymInt position_max_distance, "
    "bool position_bidirectional, str? score_mod, str score_names, Tensor[] score_tables, "
    "bool return_lse) -> (Tensor, Tensor)",
)
def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Optional[str],
    bound: Optional[Tensor],
    also: Optional[str],
    start: Optional[Tensor],
    q_offset: int,
    kv_offset: int,
    alignment: str,
    scale: Optional[float],
    softcap: float,
    alibi: Optional[Tensor],
    bias: Optional[Tensor],
    sink: Optional[Tensor],
    position_table: Optional[Tensor],
    position_max_distance: int,
    position_bidirectional: bool,
    score_mod: Optional[str],
    score_names: str,
    score_tables: List[Tensor],
    return_lse: bool,
) -> Tuple[Tensor, Tensor]:
    """`mask` (or the mask that `bound` is the number of) and `also` are joined, and asked at
    positions that count from q_offset, plus the integer in `start` where there is one, and from
    kv_offset. `score_names` are those of score_mod's tables, with commas between them."""
    from .. import PositionBias, ScoreMod, attention as compute

    base = resolved.mask_of(mask) if bound is None else resolved.mask_of_number(int(bound))
    both = resolved.joined(base, resolved.mask_of(also))
    if both is not None:
        if start is not None:
            q_offset += int(resolved.read(start))
        both = resolved.positioned(both, q_offset, kv_offset)
    buckets = None
    if position_table is not None:
        buckets = PositionBias(
            table=position_table,
            max_distance=position_max_distance,
            bidirectional=position_bidirectional,
        )
    modified = None
    if score_mod is not None:
        modified = ScoreMod(score_mod, dict(zip(score_names.split(","), score_tables)))
    result = compute(
        *_plain(q, k, v),
        both,
        scale=scale,
        enable_gqa=True,
        alignment=alignment,
        softcap=softcap,
        alibi=alibi,
        bias=bias,
        sink=sink,
        position_bias=buckets,
        score_mod=modified,
        return_lse=return_lse,
    )
    return _pair(result, return_lse, q)


@attention.register_fake
def _(q, k, v, mask, bound, also, *others):
    _expect_rank(4, q=q, k=k, v=v)
    return _promised(q, v, others[-1], q.shape[:-1])


_refuse_gradients(attention)


@operator(
    "varlen_attention",
    "Tensor q, Tensor k, Tensor v, Tensor cu_seqlens_q, Tensor cu_seqlens_kv, str? mask, "
    "str alignment, float? scale, float softcap, Tensor? alibi, Tensor? sink, "
    "Tensor? position_table, SymInt position_max_distance, bool position_bidirectional, "
    "bool return_lse) -> (Tensor, Tensor)",
)
def varlen_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_kv: Tensor,
    mask: Optional[str],
    alignment: str,
    scale: Optional[float],
    softcap: float,
    alibi: Optional[Tensor],
    sink: Optional[Tensor],
    position_table: Optional[Tensor],
    position_max_distance: int,
    position_bidirectional: bool,
    return_lse: bool,
) -> Tuple[Tensor, Tensor]:
    from .. import PositionBias, varlen_attention as compute

    buckets = None
    if position_table is not None:
        buckets = PositionBias(
            table=position_table,
            max_distance=position_max_distance,
            bidirectional=position_bidirectional,
        )
    result = compute(
        *_plain(q, k, v),
        cu_seqlens_q,
        cu_seqlens_kv,
        resolved.mask_of(mask),
        scale=scale,
        enable_gqa=True,
        alignment=alignment,
        softcap=softcap,
        alibi=alibi,
        sink=sink,
        position_bias=buckets,
        return_lse=return_lse,
    )
    return _pair(result, return_lse, q)


@varlen_attention.register_fake
def _(q, k, v, *others):
    _expect_rank(3, q=q, k=k, v=v)
    return _promised(q, v, others[-1], (q.shape[1], q.shape[0]))


_refuse_gradients(varlen_attention)


# --- a mask of computed tables --------------------------------------------------------------------


@operator(
    "mask_from_values",
    "str text, Tensor[] tables) -> Tensor",
)
def mask_from_values(text: str, tables: List[Tensor]) -> Tensor:
    """predicate(text, table0=tables[0], ...) as a number that stof::attention takes as `bound`:
    int64, no dimensions, on the CPU."""
    mask = resolved.mask_of_values(text, {f"table{i}": t for i, t in enumerate(tables)})
    return torch.tensor(resolved.number_of(mask), dtype=torch.int64)


@mask_from_values.register_fake
def _(text, tables):
    return torch.empty((), dtype=torch.int64, device="cpu")


@operator(
    "mask_rows",
    "str mask, Tensor q_offset, SymInt kv_offset, SymInt batch, SymInt heads, SymInt seq_kv) "
    "-> Tensor",
)
def mask_rows(
    mask: str, q_offset: Tensor, kv_offset: int, batch: int, heads: int, seq_kv: int
) -> Tensor:
    """Which keys from kv_offset on the query at position q_offset (a tensor of one integer) sees:
    booleans [batch, heads, 1, seq_kv] on the device of q_offset."""
    found = resolved.mask_of(mask)
    assert found is not None
    row = resolved.positioned(found, int(resolved.read(q_offset)), kv_offset)
    dense = row.to_dense(1, seq_kv, batch=batch, num_heads=heads)
    return torch.from_numpy(dense).to(q_offset.device)


@mask_rows.register_fake
def _(mask, q_offset, kv_offset, batch, heads, seq_kv):
    return torch.empty((batch, heads, 1, seq_kv), dtype=torch.bool, device=q_offset.device)
