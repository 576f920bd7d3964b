"""Attention in one call: finds or makes the plan, then runs it."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any, NamedTuple

from . import masks
from .arrays import Framework, adopt, framework_of, hand_back, torch_compiles
from .errors import InvalidArgument
from .mask import Mask
from .planning import Plan, mask_of, plan as make_plan
from .problem import PositionBias

#: Plans kept for attention() and varlen_attention(); a plan of a GPU holds some device memory.
MAX_PLANS = 256


class CacheInfo(NamedTuple):
    """What the plan cache did since the process started or cache_clear()."""

    hits: int
    misses: int
    maxsize: int
    currsize: int


class _PlanCache:
    """Least recently used plans. Two threads that miss at once may both plan; one plan is kept."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._lock = threading.Lock()
        self._plans: OrderedDict[Any, Plan] = OrderedDict()
        self._hits = self._misses = 0

    def get(self, key: Any) -> Plan | None:
        with self._lock:
            found = self._plans.get(key)
            if found is None:
                self._misses += 1
            else:
                self._hits += 1
                self._plans.move_to_end(key)
            return found

    def keep(self, key: Any, made: Plan) -> Plan:
        with self._lock:
            kept = self._plans.setdefault(key, made)
            while len(self._plans) > self._capacity:
                self._plans.popitem(last=False)
            return kept

    def info(self) -> CacheInfo:
        with self._lock:
            return CacheInfo(self._hits, self._misses, self._capacity, len(self._plans))

    def clear(self) -> None:
        with self._lock:
            self._plans.clear()
            self._hits = self._misses = 0


_cache = _PlanCache(MAX_PLANS)
_EVERYTHING: Mask | None = None


def cache_info() -> CacheInfo:
    """Hits, misses and sizes of the cache of plans that attention() keeps."""
    return _cache.info()


def cache_clear() -> None:
    """Forgets those plans."""
    _cache.clear()


def _everything() -> Mask:
    global _EVERYTHING
    if _EVERYTHING is None:
        _EVERYTHING = masks.all()
    return _EVERYTHING


def _heads(q: Any, k: Any, v: Any, rank: int, axis: int, enable_gqa: bool) -> None:
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


def _device_name(framework: Framework, array: Any) -> str:
    return str(framework.view(array, "q").device)


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
    stof.PositionBias with its table. plan: a Plan of these very options, instead of one of the cache.

    Returns a new array like q, [batch, heads, seq_q, head_dim_v], or with return_lse (out, lse) where lse
    is float32 [batch, heads, seq_q], natural log. A row that sees nothing gives 0 and -inf.

    Raises InvalidArgument naming argument, expected and got; Unsupported for what nothing here can
    honour, and for tensors that require gradients while these are enabled.

    >>> out = stof.attention(q, k, v, stof.masks.causal() & stof.masks.window(256, 0))
    """
    compiles = torch_compiles()
    framework = None if compiles else framework_of(q)
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
    table = None
    if position_bias is not None:
        table = position_bias.table
        if table is None:
            raise InvalidArgument(
                "position_bias.table: expected float32 [num_buckets, heads], got none"
            )
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
            score_mod,
            return_lse,
        )
    else:
        _check_given(
            plan,
            mask,
            dict(
                scale=scale,
                alignment=alignment,
                softcap=softcap,
                return_lse=return_lse,
                score_mod=score_mod,
            ),
        )
        if not enable_gqa and plan.problem.num_heads != plan.problem.num_heads_kv:
            _heads(q, k, v, 4, 1, enable_gqa)
    return plan.run(q, k, v, alibi=alibi, bias=bias, sink=sink, position_bias=table)


def _check_given(plan: Plan, mask: Any, asked: dict[str, Any]) -> None:
    """An option beside plan= is either its default or the plan's; nothing is dropped silently."""
    problem = plan.problem
    defaults = dict(scale=None, alignment="top_left", softcap=0.0, return_lse=False, score_mod=None)
    planned = dict(
        scale=problem.scale,
        alignment=problem.alignment,
        softcap=problem.softcap,
        return_lse=problem.return_lse,
        score_mod=None,
    )
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
    score_mod: Any,
    return_lse: bool,
) -> Plan:
    """The plan for a call, from the cache where its mask can be one's key."""
    key: Any = None
    if mask is None:
        mask = _everything()
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
                None
                if position_bias is None
                else (
                    position_bias.num_buckets,
                    position_bias.max_distance,
                    position_bias.bidirectional,
                    position_bias.table.shape,
                ),
                score_mod,
                return_lse,
            )
            found = _cache.get(key)
            if found is not None:
                return found
        except (AttributeError, TypeError):
            key = None  # something is no array: the checks below say what
    _heads(q, k, v, 4, 1, enable_gqa)
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
        device=_device_name(framework, q),
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
    return made if key is None else _cache.keep(key, made)


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
