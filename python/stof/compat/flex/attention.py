"""flex_attention(): torch's signature and results, stof's plans and kernels."""

from __future__ import annotations

import inspect
import re
import weakref
from typing import Any, NoReturn

import torch
from torch.nn.attention import flex_attention as torch_flex

from ... import layout, masks
from ...arrays import device_of, framework_of, shape_of
from ...calls import prepare
from ...errors import InvalidArgument, Unsupported
from ...mask import Mask
from ...other_names import refuse
from ...planning import plan as make_plan
from ...requests import LAYOUTS
from ...score import ScoreMod
from ...torch_arrays import check_nested
from ...torch_ops.autocast import lowered
from ...values import truth
from .block_lists import combine, state_of_lists
from .block_mask import FormulaBlockMask, TorchBlockMask, block_mask_device
from .resolving import Plans, Resolved, Resolver, Shape
from .score_blocks import attend
from .score_mods import operand, trace
from .tables import refuse_in_capture

# A BlockMask of this side is torch's way to say that there is none.
_NO_BLOCKS = 1 << 30


def _instead(given: Any) -> str:
    """What to do with something that is no BlockMask."""
    if isinstance(given, Mask) or isinstance(given, torch.Tensor) and given.dtype == torch.bool:
        return "; pass it to stof.attention() as mask"
    if callable(given):
        return "; pass create_block_mask(mask_mod, B, H, Q_LEN, KV_LEN)"
    return ""


def _check_inputs(
    query: Any, key: Any, value: Any, score_mod: Any, block_mask: Any, enable_gqa: bool
) -> None:
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        if isinstance(tensor, torch.Tensor):
            check_nested(tensor, name)
        if not isinstance(tensor, torch.Tensor) or tensor.dim() != 4:
            got = list(tensor.shape) if isinstance(tensor, torch.Tensor) else type(tensor).__name__
            raise InvalidArgument(f"{name}: expected a tensor {LAYOUTS[4]}, got {got}")
        if tensor.device != query.device:
            raise InvalidArgument(
                f"{name}: expected a tensor on {query.device} like query, got one on "
                f"{tensor.device}"
            )
    if query.device.type not in ("cpu", "cuda"):
        raise InvalidArgument(
            f"query: expected a tensor on the CPU or a CUDA device, got one on {query.device}"
        )
    if query.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        raise InvalidArgument(
            f"query: expected dtype float32, float16 or bfloat16, got {query.dtype}; convert it"
        )
    heads, heads_kv = query.shape[1], key.shape[1]
    if heads != heads_kv and not enable_gqa:
        raise InvalidArgument(
            f"key: expected {heads} heads like query, got {heads_kv}; pass enable_gqa=True if its "
            f"heads serve several of query{layout.hint(query.shape, key.shape)}"
        )
    if heads_kv == 0 or heads % heads_kv:
        raise InvalidArgument(
            f"key: expected a number of heads that divides the query's {heads}, got {heads_kv}"
            f"{layout.hint(query.shape, key.shape)}"
        )
    if block_mask is not None and not isinstance(block_mask, TorchBlockMask):
        raise InvalidArgument(
            "block_mask: expected what create_block_mask() returns or torch's BlockMask, got "
            f"{type(block_mask).__name__}{_instead(block_mask)}"
        )
    if isinstance(score_mod, TorchBlockMask):
        raise InvalidArgument(
            "score_mod: expected a function, got a BlockMask; it is the fifth argument: pass it as "
            "block_mask="
        )


def _check_alike(query: Any, key: Any, value: Any) -> None:
    """By the names that the caller knows, where a plan has q, k and v."""
    heads_kv = key.shape[1]
    for name, tensor, expected in (
        ("key", key, (query.shape[0], heads_kv, key.shape[2], query.shape[3])),
        ("value", value, (*key.shape[:3], value.shape[3])),
    ):
        if tensor.dtype != query.dtype:
            raise InvalidArgument(
                f"{name}: expected dtype {query.dtype} like query, got {tensor.dtype}; convert it"
            )
        if tuple(tensor.shape) != expected:
            raise InvalidArgument(
                f"{name}: expected shape {list(expected)}, got {list(tensor.shape)}; the layout is "
                "[batch, heads, length, head_dim]"
            )
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        if tensor.requires_grad and torch.is_grad_enabled():
            raise Unsupported(
                f"{name}: expected a tensor without gradients because stof has no backward pass, got "
                "requires_grad=True while gradients are enabled; call under torch.no_grad() or "
                "torch.inference_mode(), or pass .detach()"
            )


def _check_block_mask(block_mask: Any, shape: Shape) -> None:
    sliced = getattr(torch_flex, "_sliced_mask_mod_error", None)
    if sliced is not None and block_mask.mask_mod is sliced:
        raise InvalidArgument(
            "block_mask: expected a mask_mod because slicing a BlockMask drops its own, got none; "
            "set sliced.mask_mod from that of the whole BlockMask, its indices shifted as the slice"
        )
    *batch_dims, q_len, kv_len = block_mask.shape
    if (q_len, kv_len) != (shape.q_len, shape.kv_len):
        q, k = ((shape.batch, shape.heads, length) for length in (shape.q_len, shape.kv_len))
        hint = layout.hint_of_lengths((q_len, kv_len), q, k)
        raise InvalidArgument(
            f"block_mask: expected one for {shape.q_len} queries and {shape.kv_len} keys like "
            f"query and key, got one for {q_len} and {kv_len}; create another, or set seq_lengths "
            f"of a slice{hint}"
        )
    for name, extent, expected in zip(
        ("batch entries", "heads"), batch_dims[-2:], (shape.batch, shape.heads)
    ):
        if extent not in (1, expected):
            raise InvalidArgument(
                f"block_mask: expected {expected} {name} like query, or 1 for all, got {extent}"
            )


def _expanded(query: Any, key: Any, value: Any, block_mask: Any) -> Any:
    """key and value of one batch entry may serve all of query's, as in torch."""
    batch = query.shape[0]
    if key.shape[0] == batch:
        return key, value
    if key.shape[0] != 1 or block_mask is None:
        raise InvalidArgument(
            f"key: expected batch {batch} like query{'' if block_mask is None else ', or 1'}, got "
            f"{key.shape[0]}"
        )
    return key.expand(batch, -1, -1, -1), value.expand(batch, -1, -1, -1)


def _number(scale: Any) -> float | None:
    """scale as a number, so that the plan of another value is another plan."""
    if scale is None or type(scale) is float:
        return scale
    if isinstance(scale, torch.Tensor):
        if scale.requires_grad and torch.is_grad_enabled():
            raise Unsupported(
                "scale: expected a number or a tensor without gradients because stof computes no "
                "backward pass, got a tensor with requires_grad; call under torch.no_grad()"
            )
        if scale.is_cuda and torch.cuda.is_current_stream_capturing():
            raise InvalidArgument(
                "scale: expected a number because a CUDA graph is being captured, got a tensor on "
                f"{scale.device}, which cannot be read then; pass scale.item() taken before"
            )
    try:
        return float(scale)
    except (TypeError, ValueError, RuntimeError):
        shape = shape_of(scale)
        got = repr(scale) if shape is None else list(shape)
        raise InvalidArgument(f"scale: expected a number, got {got}") from None


# --- masks -----------------------------------------------------------------------------------

_everything = Resolved((), masks.all(), None, None, Plans())
# Of torch's BlockMasks, which have no place for what we know about them.
_resolvers: weakref.WeakKeyDictionary[TorchBlockMask, Resolver] = weakref.WeakKeyDictionary()


def _resolver(block_mask: Any, shape: Shape, device: torch.device) -> Resolver | None:
    """What knows a BlockMask of that shape; None where everything is visible."""
    if block_mask is None or tuple(block_mask.BLOCK_SIZE) == (_NO_BLOCKS, _NO_BLOCKS):
        return None
    _check_block_mask(block_mask, shape)
    if isinstance(block_mask, FormulaBlockMask):
        return block_mask.resolver
    resolver = _resolvers.get(block_mask)
    if resolver is None or resolver.device != device:
        resolver = _resolvers[block_mask] = Resolver(device)
    return resolver


def _resolve(block_mask: Any, shape: Shape, device: torch.device) -> Resolved:
    resolver = _resolver(block_mask, shape, device)
    if resolver is None:
        return _everything
    if isinstance(block_mask, FormulaBlockMask):
        return resolver.resolve(block_mask.mask_mod, shape)
    return resolver.resolve(
        block_mask.mask_mod,
        shape,
        (state_of_lists(block_mask), tuple(block_mask.BLOCK_SIZE), shape.q_len, shape.kv_len),
        lambda predicate: combine(block_mask, predicate, shape.q_len, shape.kv_len),
        warn=True,
    )


def to_stof_mask(
    block_mask: TorchBlockMask, batch: int | None = None, heads: int | None = None
) -> Mask:
    """The stof.Mask that flex_attention uses for a BlockMask now: to draw, count or pass on.

    batch and heads: extents of the scores, by default those that the BlockMask was made for. Later
    changes of captured tensors are not in it.
    """
    if not isinstance(block_mask, TorchBlockMask):
        raise InvalidArgument(f"block_mask: expected a BlockMask, got {type(block_mask).__name__}")
    *extents, q_len, kv_len = (1, 1, *block_mask.shape)[-4:]
    shape = Shape(batch or extents[0], heads or extents[1], q_len, kv_len)
    return _resolve(block_mask, shape, block_mask_device(block_mask)).mask


# --- the call --------------------------------------------------------------------------------


def _outside_of_graphs(function: Any) -> Any:
    """torch.compile's graph breaks there."""
    reason = (
        "stof.compat.flex traces mask_mod and score_mod itself; under "
        "torch.compile(fullgraph=True) use stof.attention with a mask made before"
    )
    if "reason" not in inspect.signature(torch.compiler.disable).parameters:  # torch 2.6
        return torch.compiler.disable(function)
    return torch.compiler.disable(function, reason=reason)


def _check_as_a_plan_does(problem: dict[str, Any], query: Any, key: Any, value: Any) -> None:
    """What plan() and Plan.run() check, where neither is called. On a GPU too a plan for the CPU
    does, which needs no kernel."""

    def build() -> Any:
        return make_plan(_everything.mask, **problem)

    framework = framework_of(query)
    assert framework is not None
    framework.check_operands(dict(q=query, k=key, v=value))
    checked = _everything.plans.get((*problem.values(), "checks"), build).problem
    prepare(
        checked, device_of(query.device), framework, (query, key, value), None, None, (None,) * 4
    )


@_outside_of_graphs
def _run(
    query: Any,
    key: Any,
    value: Any,
    score_mod: Any,
    block_mask: Any,
    scale: Any,
    enable_gqa: Any,
    return_lse: Any,
) -> Any:
    _check_inputs(query, key, value, score_mod, block_mask, enable_gqa)
    scale = _number(scale)
    query, key, value = lowered(query, key, value)
    key, value = _expanded(query, key, value, block_mask)
    _check_alike(query, key, value)
    shape = Shape(query.shape[0], query.shape[1], query.shape[2], key.shape[2])
    device = query.device
    score, visible = None, None
    tables: tuple[torch.Tensor, ...] = ()
    problem = dict(
        batch=shape.batch,
        num_heads=shape.heads,
        num_heads_kv=key.shape[1],
        seq_q=shape.q_len,
        seq_kv=shape.kv_len,
        head_dim=query.shape[3],
        head_dim_v=value.shape[3],
        dtype=query.dtype,
        scale=scale,
        return_lse=return_lse,
    )
    if score_mod is not None:
        traced, why = trace(score_mod, shape, device)
        if traced is None:
            _check_as_a_plan_does(problem, query, key, value)
            resolver = _resolver(block_mask, shape, device)
            results = attend(query, key, value, score_mod, why, block_mask, resolver, scale, shape)
            return results if return_lse else results[0]
        visible = traced.visible
        if traced.text != "score":
            names = set(re.findall(r"\w+", traced.text))
            used = {n: operand(n, t, device) for n, t in traced.tables.items() if n in names}
            score, tables = ScoreMod(traced.text, used), tuple(used.values())
    resolved = _resolve(block_mask, shape, device)

    def build() -> Any:
        refuse_in_capture(device, "flex_attention")
        layout.warn_of_many_heads(shape.heads, shape.q_len, shape.kv_len)
        mask = resolved.mask
        if visible is not None:
            mask = mask & masks.predicate(visible)
        return make_plan(mask, device=device, score_mod=score, **problem)

    declared = None if score is None else score.declaration
    plan = resolved.plans.get((*problem.values(), device, declared, visible), build)
    return plan.run(query, key, value, score_tables=tables)


def flex_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    score_mod: Any = None,
    block_mask: TorchBlockMask | None = None,
    scale: float | None = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
    kernel_options: dict | None = None,
    *,
    return_aux: Any = None,
    **others: NoReturn,
) -> Any:
    """torch's flex_attention, by stof's kernels: softmax(score_mod(scale * q k^T), visible keys) v.

    query [batch, heads, q_len, head_dim], key [batch, heads_kv, kv_len, head_dim], value [batch,
    heads_kv, kv_len, head_dim_v]: any strides; float32, float16 or bfloat16 on the CPU, float16 or
    bfloat16 on a GPU. heads_kv may be fewer with enable_gqa.

    score_mod(score, b, h, q_idx, kv_idx) -> score is called once a call with symbols and becomes
    part of the kernel, computed in float32; the tensors that it captures are read at every call.
    One that has no expression is evaluated with torch.vmap and attention computed by torch, some
    rows at a time, with a TraceWarning that names the operation; Unsupported where that fails too.
    block_mask: of this module's create_block_mask or torch's. Of torch's the block lists count too,
    as in its kernels: full blocks are visible, in other listed blocks mask_mod decides, the rest is
    hidden. scale: default 1/sqrt(head_dim); a negative one is refused: negate query instead.
    kernel_options: without effect because they tune torch's Triton kernels.

    Returns out [batch, heads, q_len, head_dim_v]; with return_lse (out, lse), lse float32 [batch,
    heads, q_len] in natural log; with return_aux (out, AuxOutput). A row that sees nothing gives 0
    and -inf. Computes no gradients: raises where one is asked for.
    """
    truth(enable_gqa, "enable_gqa")
    if others:
        refuse("compat.flex.flex_attention", others)
    want_lse = truth(return_lse, "return_lse")
    if return_aux is not None:
        if not isinstance(return_aux, getattr(torch_flex, "AuxRequest", ())):
            raise InvalidArgument(
                "return_aux: expected None or an AuxRequest of torch.nn.attention.flex_attention, got "
                f"{return_aux!r}"
            )
        if return_lse:
            raise InvalidArgument(
                "return_aux: expected None because return_lse is set, got both; use "
                "return_aux=AuxRequest(lse=True)"
            )
        if return_aux.max_scores:
            raise Unsupported(
                "return_aux: expected lse alone, got max_scores; stof keeps no maxima"
            )
        want_lse = truth(return_aux.lse, "return_aux.lse")
    result = _run(query, key, value, score_mod, block_mask, scale, enable_gqa, want_lse)
    if return_aux is None:
        return result
    out, lse = result if want_lse else (result, None)
    return out, torch_flex.AuxOutput(lse=lse)
