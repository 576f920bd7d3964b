"""stof.attention, stof.varlen_attention and Plan.run while torch records operators.

Everything here is traced by torch.compile itself: plain Python on attributes, no call into the
library.
"""

from __future__ import annotations

from typing import Any, Sequence

import torch

from ..errors import InvalidArgument, Unsupported
from ..framework import check_place
from ..mask import Mask
from ..problem import rows_of_table
from ..requests import check_heads, position_table
from ..score import ScoreMod
from ..torch_arrays import check_nested, is_fake
from ..values import whole
from . import operators
from .autocast import lowered


def _operands(*tensors: Any) -> tuple[Any, ...]:
    """Where gradients are off nothing requires any; torch 2.4 does not tell operators that they
    are."""
    if torch.is_grad_enabled():
        return tensors
    return tuple(x if x is None or not x.requires_grad else x.detach() for x in tensors)


def _check_tensors(**operands: Any) -> None:
    """Others cannot be operands of an operator."""
    for name, given in operands.items():
        if given is not None and not isinstance(given, torch.Tensor):
            raise Unsupported(
                f"{name}: expected a torch tensor while torch records operators, got "
                f"{type(given).__name__}; make it one before the call"
            )
        if given is not None:
            check_nested(given, name)
    if not torch.compiler.is_compiling():  # whose tensors are all of one kind
        _check_memory(operands)


def _check_memory(operands: dict[str, Any]) -> None:
    """All of them have some, or none has: no result comes of one without."""
    given_ones = [(name, x) for name, x in operands.items() if x is not None]
    for name, given in given_ones[1:]:
        first, like = given_ones[0]
        # Lengths may be in host memory, and are not read where there is nothing to compute.
        if given.device != like.device and not name.startswith("cu_seqlens"):
            raise InvalidArgument(
                f"{name}: expected a tensor on {like.device} like {first}, got one on {given.device}"
            )
        real, fake = (given, like) if is_fake(like) else (like, given)
        if is_fake(real) or not is_fake(fake) or fake.fake_mode.allow_non_fake_inputs:
            continue
        wanted, got = ("fake", "memory") if real is given else ("real", "none")
        raise InvalidArgument(
            f"{name}: expected a {wanted} tensor like {first}, got one with {got}; convert all with "
            "FakeTensorMode.from_tensor() or none"
        )


def _check_written(name: str, given: torch.Tensor, result: torch.Tensor) -> None:
    """copy_() would convert and broadcast."""
    check_place(name, given.device, result.device)
    if given.dtype != result.dtype:
        raise InvalidArgument(
            f"{name}: expected dtype {result.dtype}, got {given.dtype}; convert it, or plan for "
            "its dtype"
        )
    if given.shape != result.shape:
        raise InvalidArgument(
            f"{name}: expected shape {list(result.shape)}, got {list(given.shape)}; plan again "
            "for other shapes"
        )


def mask_text(mask: Any) -> str | None:
    """What an operator is given for a mask: text and None stay, an object gives its name."""
    if mask is None or isinstance(mask, str):
        return mask
    if isinstance(mask, Mask):
        return mask._name
    if isinstance(mask, torch.Tensor):
        raise Unsupported(
            "mask: expected a stof.Mask, its text or None while torch records operators, got a "
            "tensor, whose values are not known then; make stof.masks.dense(visible) before, or "
            "pass torch.where(visible, 0.0, float('-inf')) as bias"
        )
    raise InvalidArgument(
        f"mask: expected a stof.Mask, its text or None, got {type(mask).__name__}"
    )


def _position(position_bias: Any) -> tuple[Any, int, bool]:
    if position_bias is None:
        return None, 0, True
    table = position_table(position_bias)
    _check_tensors(**{"position_bias.table": table})
    rows_of_table(table, whole(position_bias.num_buckets, "position_bias.num_buckets"))
    distance = whole(position_bias.max_distance, "position_bias.max_distance")
    return _operands(table)[0], distance, position_bias.bidirectional


def _modification(score_mod: Any) -> tuple[str | None, str, list[torch.Tensor]]:
    """A ScoreMod, text or None as its text, the names of its tables, and these."""
    if score_mod is None or isinstance(score_mod, str):
        return score_mod, "", []
    modified = ScoreMod.of(score_mod)
    assert modified is not None
    tables = list(modified.tables.values())
    for table in tables:
        _check_tensors(score_mod=table)
    return modified.text, ",".join(list(modified.tables)), list(_operands(*tables))


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
    _check_tensors(
        q=q, k=k, v=v, out=out, lse=lse, alibi=alibi, bias=bias, sink=sink,
        position_bias=position_bias,
    )  # fmt: skip
    for table in score_tables:
        _check_tensors(score_tables=table)
    if lse is not None and not plan._returns_lse:
        raise InvalidArgument(
            "lse: expected none because the plan was made without return_lse, got an array; plan "
            "again with return_lse=True"
        )
    q, k, v, alibi, bias, sink, position_bias = _operands(q, k, v, alibi, bias, sink, position_bias)
    result, computed = operators.run(
        plan._name, q, k, v, alibi, bias, sink, position_bias, list(_operands(*score_tables))
    )
    if out is not None:
        _check_written("out", out, result)
    if lse is not None:
        _check_written("lse", lse, computed)
        computed = lse.copy_(computed)
    if out is not None:
        result = out.copy_(result)
    return (result, computed) if plan._returns_lse else result


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
    _check_tensors(q=q, k=k, v=v, alibi=alibi, bias=bias, sink=sink)
    check_heads(q, k, v, 4, 1, enable_gqa)
    q, k, v, alibi, bias, sink = _operands(*lowered(q, k, v), alibi, bias, sink)
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
    _check_tensors(
        q=q, k=k, v=v, cu_seqlens_q=cu_seqlens_q, cu_seqlens_kv=cu_seqlens_kv, alibi=alibi,
        sink=sink,
    )  # fmt: skip
    check_heads(q, k, v, 3, 1, enable_gqa)
    q, k, v, alibi, sink = _operands(*lowered(q, k, v), alibi, sink)
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
