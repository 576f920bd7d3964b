"""Attention in one call: finds or makes the plan, then runs it."""

from __future__ import annotations

from typing import Any

from .arrays import adopt, framework_of, hand_back, torch_compiles
from .framework import Framework
from .cache import plans, recent
from .mask import Mask
from .planning import Plan, plan as make_plan
from .problem import PositionBias, scale_and_softcap
from .requests import check_given, check_heads, everything, position_key, position_table
from .score import ScoreMod


#: scale, enable_gqa, alignment, softcap and return_lse where the caller says nothing.
_DEFAULTS = (None, False, "top_left", 0.0, False)


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
) -> Any:
    """softmax(scale * q k^T over the visible keys) v.

    q [batch, heads, seq_q, head_dim], k [batch, heads_kv, seq_kv, head_dim], v [batch, heads_kv, seq_kv,
    head_dim_v]: NumPy arrays, torch tensors, or objects with __dlpack__; float32, float16 or bfloat16 on
    the CPU, float16 or bfloat16 on an NVIDIA GPU; any strides.

    mask: a stof.Mask, its text, a boolean array (true is visible; planned anew in every call), or None
    for everything. An additive mask goes to bias. scale: default 1/sqrt(head_dim). enable_gqa: heads of
    k and v may be fewer than q's, each serving as many in turn. alignment: where query 0 stands when
    lengths differ. softcap: logits = softcap * tanh(logits / softcap), 0 for none. alibi: float32 slopes
    [heads]. bias: float32, broadcastable to [batch, heads, seq_q, seq_kv]; -inf hides, a finite value
    never does. sink: float32 [heads], a learned logit in the denominator. position_bias: a
    stof.PositionBias with its table. score_mod: a stof.ScoreMod, the last change to a score
    before the mask. plan: a Plan of these very options, instead of one of the cache.

    Returns a new array like q, [batch, heads, seq_q, head_dim_v], or with return_lse (out, lse) where lse
    is float32 [batch, heads, seq_q], natural log. A row that sees nothing gives 0 and -inf.

    Raises InvalidArgument naming argument, expected and got; Unsupported for what nothing here can
    honour, and for tensors that require gradients while these are enabled.

    >>> out = stof.attention(q, k, v, stof.masks.causal() & stof.masks.window(256, 0))
    """
    compiles = torch_compiles()
    # Numbers, before they are compared: a tensor's value may change in place.
    if (scale is not None and type(scale) is not float) or type(softcap) is not float:
        if not compiles:
            scale, softcap = scale_and_softcap(scale, softcap)
    options = (scale, enable_gqa, alignment, softcap, return_lse)
    bare = alibi is bias is sink is position_bias is score_mod is None
    found = None
    if bare and plan is None and not compiles:
        found = recent.plan_for(mask, options)
        if found is not None:
            again = getattr(found._local, "again", None)
            if again is not None and not again.is_autocast() and again.fits(q, k, v):
                plans.count_hit()
                return again.run(found, q, k, v)
    framework = None if compiles else framework_of(q)
    if framework is not None:
        framework.check_operands(dict(q=q, k=k, v=v))
    if compiles or (
        framework is not None and framework.name == "torch" and framework.is_traced(q, k, v)
    ):
        from . import torch_ops

        return torch_ops.attention(
            q,
            k,
            v,
            mask,
            scale=scale,
            enable_gqa=enable_gqa,
            alignment=alignment,
            softcap=softcap,
            alibi=alibi,
            bias=bias,
            sink=sink,
            position_bias=position_bias,
            score_mod=score_mod,
            return_lse=return_lse,
            plan=plan,
        )
    if framework is None:
        return _adopted(
            q,
            (k, v, alibi, bias, sink),
            mask,
            position_bias,
            dict(
                scale=scale,
                enable_gqa=enable_gqa,
                alignment=alignment,
                softcap=softcap,
                score_mod=score_mod,
                return_lse=return_lse,
                plan=plan,
            ),
        )
    if plan is None and framework.name == "torch" and framework.is_autocast():
        from . import torch_ops

        q, k, v = torch_ops.lowered(q, k, v)
    table = None if position_bias is None else position_table(position_bias)
    modified = None if score_mod is None else ScoreMod.of(score_mod)
    if found is not None and framework.name == "NumPy" and found.takes(framework, q, k, v):
        plans.count_hit()
        return found.run(q, k, v)
    if plan is None:
        plan = _find(
            framework,
            q,
            k,
            v,
            mask,
            scale,
            enable_gqa,
            alignment,
            softcap,
            alibi,
            bias,
            sink,
            position_bias,
            modified,
            return_lse,
        )
        if bare:
            recent.keep(mask, options, plan)
    else:
        changed = score_mod is not None or position_bias is not None or options != _DEFAULTS
        if changed or mask is not None:
            check_given(
                plan,
                mask,
                dict(
                    scale=scale,
                    alignment=alignment,
                    softcap=softcap,
                    return_lse=return_lse,
                    score_mod=modified,
                    position_bias=position_bias,
                ),
            )
        if not enable_gqa and plan.problem.num_heads != plan.problem.num_heads_kv:
            check_heads(q, k, v, 4, 1, enable_gqa)
    return plan.run(
        q,
        k,
        v,
        alibi=alibi,
        bias=bias,
        sink=sink,
        position_bias=table,
        score_tables=() if modified is None else tuple(modified.tables.values()),
    )


def _find(
    framework: Framework,
    q: Any,
    k: Any,
    v: Any,
    mask: Any,
    scale: float | None,
    enable_gqa: bool,
    alignment: str,
    softcap: float,
    alibi: Any,
    bias: Any,
    sink: Any,
    position_bias: PositionBias | None,
    score_mod: ScoreMod | None,
    return_lse: bool,
) -> Plan:
    """The plan for a call, from the cache where its mask can be one's key."""
    key: Any = None
    if mask is None:
        mask = everything()
    if isinstance(mask, (Mask, str)):
        try:
            key = (
                mask,
                q.shape,
                k.shape,
                v.shape,
                q.dtype,
                getattr(q, "device", None),
                scale,
                enable_gqa,
                alignment,
                softcap,
                alibi is None,
                bias is None,
                sink is None,
                None if position_bias is None else position_key(position_bias),
                None if score_mod is None else score_mod.declaration,
                return_lse,
            )
            found = plans.get(key)
            if found is not None:
                return found
        except (AttributeError, TypeError):
            key = None  # something is no array: the checks below say what
    check_heads(q, k, v, 4, 1, enable_gqa)
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
        scale=scale,
        softcap=softcap,
        alibi=alibi is not None,
        bias=bias is not None,
        sink=sink is not None,
        position_bias=position_bias,
        return_lse=return_lse,
        alignment=alignment,
        score_mod=score_mod,
    )
    return made if key is None else plans.keep(key, made)


def _adopted(
    q: Any,
    others: tuple[Any, ...],
    mask: Any,
    position_bias: PositionBias | None,
    options: dict[str, Any],
) -> Any:
    """Objects of other libraries, by DLPack."""
    taken_q = adopt(q, "q")[1]
    k, v, alibi, bias, sink = (
        x if x is None else adopt(x, name)[1]
        for name, x in zip(("k", "v", "alibi", "bias", "sink"), others)
    )
    if position_bias is not None and position_bias.table is not None:
        position_bias = PositionBias(
            position_bias.num_buckets,
            position_bias.max_distance,
            position_bias.bidirectional,
            adopt(position_bias.table, "position_bias.table")[1],
        )
    score_mod = ScoreMod.of(options.pop("score_mod"))
    if score_mod is not None and score_mod.tables:
        tables = {name: adopt(x, name)[1] for name, x in score_mod.tables.items()}
        score_mod = ScoreMod(score_mod.text, tables)
    options["score_mod"] = score_mod
    result = attention(
        taken_q,
        k,
        v,
        mask,
        alibi=alibi,
        bias=bias,
        sink=sink,
        position_bias=position_bias,
        **options,
    )
    if isinstance(result, tuple):
        return tuple(hand_back(array, q) for array in result)
    return hand_back(result, q)
