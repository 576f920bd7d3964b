"""The attention function of "stof": what transformers' models call in place of a softmax."""

from __future__ import annotations

from typing import Any

import torch
from transformers.utils.import_utils import is_tracing

from .. import attention as compute
from ..errors import InvalidArgument, Unsupported
from ..torch_ops import calls, resolved
from . import outputs, sparse
from .host_mask import JOINED_ROW, HostMask
from .settings import Settings

#: What models hand down that was used before queries, keys and values were made, or is of no
#: concern to attention. Anything else that is given and not honoured is refused by name.
HARMLESS = frozenset(
    (
        "cache_position",
        "deterministic",
        "encoder_hidden_states",
        "layer_idx",
        "logits_to_keep",
        "num_items_in_batch",
        "output_hidden_states",
        "output_router_logits",
        "past_key_values",
        "position_embeddings",
        "position_ids",
        "return_dict",
        "token_type_ids",
        "use_cache",
    )
)

_REASONS = {
    "head_mask": 'it scales heads after the softmax; prune the heads, or use "eager"',
    "layer_head_mask": 'it scales heads after the softmax; prune the heads, or use "eager"',
    "cu_seq_lens_q": "packed sequences are told by position_ids; leave cu_seq_lens_* and "
    "max_length_* out, and attention_mask None",
    "indices": 'keys chosen per query by the model; use "eager"',
    "block_indices": 'blocks chosen per query by the model; use "eager"',
}


def _refuse_unknown(given: dict[str, Any]) -> None:
    for name, value in given.items():
        if name in HARMLESS or name in Settings.ignored or value is None:
            continue
        if value is False and (name == "output_attentions" or name in _REASONS):
            continue  # switched off
        if name == "output_attentions":
            outputs.refuse()
        why = _REASONS.get(
            name,
            "stof does not know what it means; if it has no effect on attention say so with "
            f"stof.transformers.register(ignore=[{name!r}])",
        )
        raise Unsupported(f'{name}: expected None for the attention "stof", got a value: {why}')


def _hidden(visible: torch.Tensor) -> torch.Tensor:
    """Booleans as a bias: 0 where visible, -inf elsewhere."""
    zeros = torch.zeros((), dtype=torch.float32, device=visible.device)
    return torch.where(visible, zeros, float("-inf"))


def _sum(a: torch.Tensor | None, b: torch.Tensor | None) -> torch.Tensor | None:
    if a is None or b is None:
        return a if b is None else b
    return a + b


def _is_cross(module: Any) -> bool:
    """A decoder looking at its encoder."""
    if getattr(module, "is_cross_attention", False):
        return True
    return bool(getattr(module, "is_decoder", False)) and not getattr(module, "is_causal", True)


def _unmasked(
    module: Any, q_length: int, kv_length: int, is_causal: bool | None, sliding_window: int | None
) -> tuple[str | None, str]:
    """(mask, alignment) where the host gave no mask: causal models stay causal."""
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    if not causal:
        if sliding_window is not None:
            raise Unsupported(
                f"attention_mask: expected one with sliding_window={sliding_window} in a module "
                "that is not causal, got None; which side the window covers is the mask's to say"
            )
        return None, "top_left"
    if q_length != 1 and q_length != kv_length:
        raise InvalidArgument(
            f"attention_mask: expected one for {q_length} queries and {kv_length} keys of a "
            "causal module, got None; whether the queries come first or last cannot be told"
        )
    window = "" if sliding_window is None else f" & window({sliding_window - 1}, -1)"
    return "causal" + window, "bottom_right"


def _undescribed(module: Any, q_length: int, kv_length: int, what: str) -> Any:
    """The user's sparse mask where the model did not ask stof_mask, which would have joined it."""
    also = None if _is_cross(module) else sparse.of_config(getattr(module, "config", None))
    if also is not None and q_length != kv_length:
        raise InvalidArgument(
            f"attention_mask: expected the 2-D padding mask or None given to the model, beside the "
            f"sparse mask of config.stof_mask or sparse_mask(), got {what} for {q_length} queries "
            f"and {kv_length} keys; at which positions of the sparse mask they stand cannot be told"
        )
    return also


def _has_sparse(module: Any) -> bool:
    return sparse.of_config(getattr(module, "config", None)) is not None


def _checked_tensor(given: torch.Tensor) -> torch.Tensor:
    if given.dtype == torch.bool or given.is_floating_point():
        return given
    raise InvalidArgument(
        "attention_mask: expected booleans (true is visible) or floating-point numbers to add to "
        f"the logits, got {given.dtype}; where 0 means hidden pass attention_mask.bool()"
    )


def stof_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: HostMask | torch.Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    is_causal: bool | None = None,
    softcap: float | None = None,
    sliding_window: int | None = None,
    s_aux: torch.Tensor | None = None,
    position_bias: torch.Tensor | None = None,
    **others: Any,
) -> tuple[torch.Tensor, None]:
    """query [batch, heads, q_length, head_dim] against key and value [batch, heads_kv,
    kv_length, .]: [batch, q_length, heads, head_dim], and no weights.

    attention_mask: the HostMask of stof_mask, or a 4-D tensor of the caller's, boolean (true is
    visible) or additive. A sliding window is part of the mask that the model's own mask function
    described; `sliding_window` only counts where there is no mask. The sparse mask holds beside a
    tensor and without a mask too, or the call is refused. position_bias [1 or batch,
    heads, q_length, kv_length] is added to the logits, s_aux [heads] is a sink.
    """
    if dropout:
        raise Unsupported(
            f"dropout: expected 0, got {dropout}: stof has no attention dropout; call "
            "model.eval(), or set the config's attention dropout to 0"
        )
    _refuse_unknown(others)
    outputs.refuse_if_captured()

    bias = None if position_bias is None else position_bias.float()
    options: dict[str, Any] = dict(scale=scaling, enable_gqa=True, softcap=softcap or 0.0)
    if s_aux is not None:
        options["sink"] = s_aux.float()

    if attention_mask is None:
        mask, alignment = _unmasked(module, query.shape[2], key.shape[2], is_causal, sliding_window)
        also = _undescribed(module, query.shape[2], key.shape[2], "none")
        out = _joined(query, key, value, mask, also, bias, {**options, "alignment": alignment})
    elif isinstance(attention_mask, HostMask):
        _check_lengths(attention_mask, query, key)
        if attention_mask.row is not None:
            bias = _sum(bias, _hidden(attention_mask.row))
        also = None if _is_cross(module) else attention_mask.also
        out = _masked(query, key, value, attention_mask, also, bias, options)
    else:
        _refuse_own_mask(module)
        given, also = attention_mask, None
        if given.dtype == JOINED_ROW and given.shape[2] == 1 and _has_sparse(module):
            given = given.bool()
        else:
            given = _checked_tensor(given)
            also = _undescribed(module, query.shape[2], key.shape[2], "a tensor")
        bias = _sum(bias, _hidden(given) if given.dtype == torch.bool else given.float())
        out = _joined(query, key, value, None, also, bias, options)
    return out.transpose(1, 2).contiguous(), None


def _refuse_own_mask(module: Any) -> None:
    """Doge's layers make a mask of their own, in which they only count masks that are tensors."""
    if hasattr(module, "prepare_dynamic_mask"):
        raise Unsupported(
            f'{type(module).__name__}: expected a layer that hands on its model\'s mask to "stof", got '
            "one that makes its own without it (prepare_dynamic_mask); use "
            'attn_implementation="eager"'
        )


def _check_lengths(mask: HostMask, query: torch.Tensor, key: torch.Tensor) -> None:
    _, _, q_length, kv_length = mask.extents
    if query.shape[2] != q_length or key.shape[2] != kv_length:
        raise InvalidArgument(
            f"attention_mask: expected one for {query.shape[2]} queries and {key.shape[2]} keys, "
            f"got one for {q_length} and {kv_length}; the layer and the mask belong to different "
            "caches"
        )


def _joined(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: str | None,
    also: Any,
    bias: torch.Tensor | None,
    options: dict[str, Any],
) -> torch.Tensor:
    """What both let through; `mask` is text, None for everything."""
    if also is None:
        return compute(query, key, value, mask, bias=bias, **options)
    if is_tracing(query):
        return calls.attention(query, key, value, mask, also=also, bias=bias, **options)
    both = resolved.joined(resolved.mask_of(mask), resolved.mask_of(also))
    return compute(query, key, value, both, bias=bias, **options)


def _masked(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: HostMask,
    also: Any,
    bias: torch.Tensor | None,
    options: dict[str, Any],
) -> torch.Tensor:
    if mask.recorded:
        return calls.attention(
            query,
            key,
            value,
            mask.mask,
            bound=mask.bound,
            also=also,
            start=mask.start,
            q_offset=mask.q_offset,
            kv_offset=mask.kv_offset,
            bias=bias,
            **options,
        )
    both = resolved.joined(mask.mask, also)
    return compute(query, key, value, both, bias=bias, **options)
