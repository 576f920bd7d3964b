"""Packed sequences of unequal length: one call for all of them, without padding."""

from __future__ import annotations

from typing import Any, NoReturn, Sequence

from .arrays import adopt, device_of, framework_of, shape_of, torch_compiles
from .cache import plans
from .errors import InvalidArgument
from .values import truth, wholes
from .mask import Mask
from .other_names import refuse
from .planning import Plan, mask_of
from .problem import PositionBias, Problem, but, scale_and_softcap
from .requests import Request, adopted, check_alike, check_heads, everything, handed_back
from .spoken import spoken


def lengths_of(cu_seqlens: Any, name: str) -> tuple[int, ...]:
    """Cumulative lengths as numbers. Reading them from a GPU waits for it."""
    shape = shape_of(cu_seqlens)
    if shape is not None and len(shape) != 1:
        raise InvalidArgument(
            f"{name}: expected cumulative lengths [sequences + 1], got shape {list(shape)}"
        )
    if hasattr(cu_seqlens, "__dlpack__") and not hasattr(cu_seqlens, "tolist"):
        cu_seqlens = adopt(cu_seqlens, name)[1]
    lengths = tuple(wholes(cu_seqlens, name))
    if len(lengths) < 2:
        raise InvalidArgument(
            f"{name}: expected at least two whole numbers, 0 and the end of each sequence, got "
            f"{list(lengths)}"
        )
    if lengths[0] != 0 or any(b < a for a, b in zip(lengths, lengths[1:])):
        raise InvalidArgument(
            f"{name}: expected cumulative lengths that ascend from 0, got {list(lengths)[:8]}"
            f"{'...' if len(lengths) > 8 else ''}; of lengths make them by "
            "numpy.cumsum([0, *lengths])"
        )
    return lengths


def _rows_of(cu_seqlens_q: Any, cu_seqlens_kv: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Both as numbers; the second's default is the first."""
    if isinstance(cu_seqlens_kv, (str, Mask)):
        raise InvalidArgument(
            "cu_seqlens_kv: expected cumulative lengths [sequences + 1], got a mask; write mask= before it"
        )
    rows_q = lengths_of(cu_seqlens_q, "cu_seqlens_q")
    if cu_seqlens_kv is None:
        return rows_q, rows_q
    return rows_q, lengths_of(cu_seqlens_kv, "cu_seqlens_kv")


@spoken("varlen_plan")
def varlen_plan(
    mask: Any,
    cu_seqlens_q: Sequence[int] | Any,
    cu_seqlens_kv: Sequence[int] | Any = None,
    *,
    num_heads: int,
    num_heads_kv: int | None = None,
    head_dim: int,
    head_dim_v: int | None = None,
    dtype: Any,
    device: Any = "cpu",
    scale: float | None = None,
    softcap: float = 0.0,
    alibi: bool = False,
    sink: bool = False,
    position_bias: PositionBias | None = None,
    return_lse: bool = False,
    alignment: str = "top_left",
    score_mod: Any = None,
    kernel: str | None = None,
    **others: NoReturn,
) -> Plan:
    """Plans attention of packed sequences: sequence i owns rows cu_seqlens_q[i] to
    cu_seqlens_q[i+1] of q and out, likewise cu_seqlens_kv (default: the same) of k and v.
    Plan.run() takes them as [rows, heads, head_dim].

    mask: a stof.Mask, its text or None; it is applied to each sequence with the sequence's own
    lengths and number as batch entry. The options are those of plan().

    Raises InvalidArgument, Unsupported with a reason, or NotFound where there is no such GPU.
    """
    if others:
        refuse("varlen_plan", others)
    given = but(locals(), "mask", "cu_seqlens_q", "cu_seqlens_kv", "device", "kernel", "others")
    rows_q, rows_kv = _rows_of(cu_seqlens_q, cu_seqlens_kv)
    if len(rows_q) != len(rows_kv):
        raise InvalidArgument(
            f"cu_seqlens_kv: expected {len(rows_q)} entries like cu_seqlens_q, got {len(rows_kv)}"
        )
    chosen = mask_of(mask)
    if chosen is None:
        raise InvalidArgument(
            "mask: expected a stof.Mask, its text or None with packed sequences, got "
            f"{type(mask).__name__}; make one with stof.masks"
        )
    problem = Problem.make(
        batch=0, seq_q=0, seq_kv=0, cu_seqlens_q=rows_q, cu_seqlens_kv=rows_kv, **given
    )
    return Plan(problem, chosen, device_of(device), kernel)


def varlen_attention(
    q: Any,
    k: Any,
    v: Any,
    cu_seqlens_q: Any,
    cu_seqlens_kv: Any = None,
    mask: Any = None,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
    alignment: str = "top_left",
    softcap: float = 0.0,
    alibi: Any = None,
    sink: Any = None,
    position_bias: PositionBias | None = None,
    score_mod: Any = None,
    return_lse: bool = False,
    plan: Plan | None = None,
    **others: NoReturn,
) -> Any:
    """Attention of packed sequences; each sees itself only, under the mask with its own lengths.

    q [rows, heads, head_dim], k [rows_kv, heads_kv, head_dim], v [rows_kv, heads_kv, head_dim_v]:
    NumPy arrays, torch tensors, or objects with __dlpack__. cu_seqlens_q and cu_seqlens_kv
    (default: the same): [sequences + 1] integers ascending from 0; those on a GPU are read by the
    host, which waits: keep a varlen_plan() where that matters. A mask that differs between batch
    entries gives entry i to sequence i. The options mean what they mean for attention(); there is
    no bias tensor here.

    Returns [rows, heads, head_dim_v], or with return_lse (out, lse) where lse is float32 [heads,
    rows].

    Raises InvalidArgument naming argument, expected and got; Unsupported for what nothing here can
    honour, and for tensors that require gradients while these are enabled.
    """
    if others:
        refuse("varlen_attention", others)
    truth(enable_gqa, "enable_gqa")  # before they find a plan: 1 == True
    truth(return_lse, "return_lse")
    compiles = torch_compiles()
    if not compiles:
        scale, softcap = scale_and_softcap(scale, softcap)
    given = dict(
        scale=scale,
        alignment=alignment,
        softcap=softcap,
        alibi=alibi,
        sink=sink,
        position_bias=position_bias,
        return_lse=return_lse,
    )
    framework = None if compiles else framework_of(q)
    if framework is not None:
        framework.check_operands(dict(q=q, k=k, v=v))
    if compiles or (framework is not None and framework.is_traced(q, k, v)):
        if plan is not None or score_mod is not None:
            raise InvalidArgument(
                "plan, score_mod: expected None while torch records operators, got "
                f"{'a plan' if plan is not None else 'score_mod'}; make a stof.varlen_plan() and call "
                "its run()"
            )
        from . import torch_ops

        rows = cu_seqlens_q, cu_seqlens_q if cu_seqlens_kv is None else cu_seqlens_kv
        return torch_ops.varlen_attention(q, k, v, *rows, mask, enable_gqa=enable_gqa, **given)
    if framework is None:
        taken = adopted(q=q, k=k, v=v, score_mod=score_mod, **given)
        packed = dict(cu_seqlens_q=cu_seqlens_q, cu_seqlens_kv=cu_seqlens_kv, mask=mask)
        return handed_back(varlen_attention(**taken, **packed, enable_gqa=enable_gqa, plan=plan), q)
    if plan is None and framework.is_autocast():
        from . import torch_ops

        q, k, v = torch_ops.lowered(q, k, v)
    request = Request(**given, score_mod=score_mod)
    rows_q, rows_kv = _rows_of(cu_seqlens_q, cu_seqlens_kv)
    if plan is not None:
        request.check_beside(plan, mask)
        for name, lengths in (("cu_seqlens_q", rows_q), ("cu_seqlens_kv", rows_kv)):
            if getattr(plan.problem, name) != lengths:
                raise InvalidArgument(
                    f"{name}: expected the plan's {getattr(plan.problem, name)}, got {lengths}; plan "
                    "again"
                )
    check_heads(q, k, v, 3, 1, enable_gqa)
    if plan is None:
        ends = (("cu_seqlens_q", rows_q, "q", q), ("cu_seqlens_kv", rows_kv, "k", k))
        for name, lengths, operand, array in ends:
            if lengths[-1] != array.shape[0]:
                raise InvalidArgument(
                    f"{name}: expected it to end with {array.shape[0]}, the rows of {operand}, got "
                    f"{lengths[-1]}"
                )
        if mask is None:
            mask = everything()
        key: Any = None
        if isinstance(mask, (Mask, str)):
            kinds = (q.shape[1:], k.shape[1:], v.shape[1:], q.dtype, getattr(q, "device", None))
            key = ("varlen", mask, rows_q, rows_kv, *kinds, request.key())
            plan = plans.get(key)
        if plan is None:
            check_alike(framework, q, k, v)
            options = request.planned()
            del options["bias"]
            plan = varlen_plan(
                mask,
                rows_q,
                rows_kv,
                num_heads=q.shape[1],
                num_heads_kv=k.shape[1],
                head_dim=q.shape[2],
                head_dim_v=v.shape[2],
                dtype=q.dtype,
                device=framework.view(q, "q").device,
                **options,
            )
            plan = plans.keep(key, plan)
    return plan.run(q, k, v, **request.operands())
