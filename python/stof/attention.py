"""Attention in one call: finds or makes the plan, then runs it."""

from __future__ import annotations

from typing import Any, NoReturn

from . import layout
from .arrays import framework_of, torch_compiles
from .framework import Framework
from .cache import plans, recent
from .mask import Mask
from .other_names import refuse
from .planning import Plan, plan as make_plan
from .problem import PositionBias, Problem, scale_and_softcap
from .requests import Request, adopted, check_alike, check_heads, everything, handed_back
from .values import truth


#: scale, enable_gqa, alignment, softcap and return_lse where the caller says nothing.
_DEFAULTS = (Problem.scale, False, Problem.alignment, Problem.softcap, Problem.return_lse)


def attention(
    q: Any,
    k: Any,
    v: Any,
    mask: Any = None,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
    alignment: str = "top_left",
    softcap: float = 0.0,
    alibi: Any = None,
    bias: Any = None,
    sink: Any = None,
    position_bias: PositionBias | None = None,
    score_mod: Any = None,
    return_lse: bool = False,
    plan: Plan | None = None,
    **others: NoReturn,
) -> Any:
    """softmax(scale * q k^T over the visible keys) v (Vaswani et al. 2017, arXiv 1706.03762, §3.2).

    q [batch, heads, seq_q, head_dim], k [batch, heads_kv, seq_kv, head_dim], v [batch, heads_kv,
    seq_kv, head_dim_v]: NumPy arrays, torch tensors, or objects with __dlpack__; float32, float16
    or bfloat16 on the CPU, float16 or bfloat16 on an NVIDIA GPU; any strides.

    mask: a stof.Mask, its text, a boolean array (true is visible; planned anew in every call), or
    None for everything. An additive mask goes to bias. scale: default 1/sqrt(head_dim). enable_gqa:
    heads of k and v may be fewer than q's, each serving as many in turn. alignment: where query 0
    stands when lengths differ. softcap: logits = softcap * tanh(logits / softcap), 0 for none.
    alibi: float32 slopes [heads]. bias: float32, broadcastable to [batch, heads, seq_q, seq_kv];
    -inf hides, a finite value never does. sink: float32 [heads], a learned logit in the
    denominator. position_bias: a stof.PositionBias with its table. score_mod: a stof.ScoreMod, the
    last change to a score before the mask. plan: a Plan of these very options, instead of one of
    the cache.

    Returns a new array like q, [batch, heads, seq_q, head_dim_v], or with return_lse (out, lse)
    where lse is float32 [batch, heads, seq_q], natural log. A row that sees nothing gives 0 and
    -inf.

    CUDA graphs that hold calls with equal masks, shapes and options share a plan's memory: replay
    them one after another, or capture Plan.run() of a plan for each.

    Raises InvalidArgument naming argument, expected and got; Unsupported for what nothing here can
    honour, and for tensors that require gradients while these are enabled.

    Sources: enable_gqa Ainslie et al. 2023, arXiv 2305.13245; softcap Gemma 2, Riviere et al. 2024,
    arXiv 2408.00118; alibi Press et al. 2021, arXiv 2108.12409; sink gpt-oss, Agarwal et al. 2025,
    arXiv 2508.10925; position_bias Raffel et al. 2020, arXiv 1910.10683.

    >>> out = stof.attention(q, k, v, stof.masks.causal() & stof.masks.window(256, 0))
    """
    if others:
        refuse("attention", others)
    truth(enable_gqa, "enable_gqa")  # before they find a plan: 1 == True
    truth(return_lse, "return_lse")
    compiles = torch_compiles()
    # Numbers, before they are compared: a tensor's value may change in place.
    if (scale is not None and type(scale) is not float) or type(softcap) is not float:
        if not compiles:
            scale, softcap = scale_and_softcap(scale, softcap)
    options = (scale, enable_gqa, alignment, softcap, return_lse)
    bare = alibi is bias is sink is position_bias is score_mod is None
    found = key = None
    if bare and not compiles:
        if plan is None:
            key = recent.key(mask, q, k)
            found = recent.plan_for(key, options)
        elif mask is None and options == _DEFAULTS and isinstance(plan, Plan) and plan._equal_heads:
            found = plan
        if found is not None:
            again = getattr(found._local, "again", None)
            if again is not None and (plan is found or not again.is_autocast()):
                if again.fits(q, k, v):
                    if plan is None:
                        plans.count_hit()
                    return again.run(found, q, k, v)
    framework = None if compiles else framework_of(q)
    if found is not None and framework is not None and framework.name == "NumPy":
        if found.takes(framework, q, k, v):
            if plan is None:
                plans.count_hit()
            return found.run(q, k, v)
    given = dict(
        scale=scale,
        alignment=alignment,
        softcap=softcap,
        alibi=alibi,
        bias=bias,
        sink=sink,
        position_bias=position_bias,
        score_mod=score_mod,
        return_lse=return_lse,
    )
    if framework is not None:
        framework.check_operands(dict(q=q, k=k, v=v))
    if compiles or (framework is not None and framework.is_traced(q, k, v)):
        from . import torch_ops

        return torch_ops.attention(q, k, v, mask, enable_gqa=enable_gqa, plan=plan, **given)
    if framework is None:
        taken = adopted(q=q, k=k, v=v, **given)
        return handed_back(attention(**taken, mask=mask, enable_gqa=enable_gqa, plan=plan), q)
    if plan is None and framework.is_autocast():
        from . import torch_ops

        q, k, v = torch_ops.lowered(q, k, v)
    request = Request(**given)
    if plan is None:
        plan = _find(framework, q, k, v, mask, enable_gqa, request)
        if bare:
            recent.keep(key, mask, options, plan)
    else:
        if mask is not None or options != _DEFAULTS or not bare or not isinstance(plan, Plan):
            request.check_beside(plan, mask)
        if not enable_gqa and plan.problem.num_heads != plan.problem.num_heads_kv:
            check_heads(q, k, v, 4, 1, enable_gqa)
    return plan.run(q, k, v, **request.operands())


def _find(
    framework: Framework,
    q: Any,
    k: Any,
    v: Any,
    mask: Any,
    enable_gqa: bool,
    request: Request,
) -> Plan:
    """The plan for a call, from the cache where its mask can be one's key."""
    key: Any = None
    if mask is None:
        mask = everything()
    if isinstance(mask, (Mask, str)):
        try:
            device = getattr(q, "device", None)
            kinds = (q.shape, k.shape, v.shape, q.dtype, k.dtype, v.dtype, device, enable_gqa)
            key = (mask, *kinds, request.key())
            found = plans.get(key)
            if found is not None:
                return found
        except (AttributeError, TypeError):
            key = None  # something is no array: the checks below say what
    check_heads(q, k, v, 4, 1, enable_gqa)
    check_alike(framework, q, k, v)
    layout.warn_of_many_heads(q.shape[1], q.shape[2], k.shape[2])
    made = make_plan(
        mask,
        batch=q.shape[0],
        num_heads=q.shape[1],
        num_heads_kv=k.shape[1],
        seq_q=q.shape[2],
        seq_kv=k.shape[2],
        head_dim=q.shape[3],
        head_dim_v=v.shape[3],
        dtype=q.dtype,
        device=framework.view(q, "q").device,
        **request.planned(),
    )
    return made if key is None else plans.keep(key, made)
