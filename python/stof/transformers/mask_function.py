"""The mask function of the "stof" attention: from transformers' description of a mask to a
HostMask.

transformers calls it once a forward pass and kind of layer, with the lengths and offsets of queries
and keys, a function of (batch, head, query, key) positions, and the 2-D padding mask.
"""

from __future__ import annotations

from typing import Any, Callable

import torch
from transformers.masking_utils import (
    bidirectional_mask_function,
    causal_mask_function,
    prepare_padding_mask,
    sdpa_mask,
)
from transformers.utils.import_utils import is_tracing

from ..errors import Unsupported
from ..torch_ops import operators, resolved
from ..torch_ops.calls import mask_text
from . import sparse
from .host_mask import JOINED_ROW, HostMask, RecordedHostMask
from .settings import Settings
from .tracing import traced, traced_in_graph


def _is_cross(config: Any, mask_function: Callable) -> bool:
    """A decoder's mask over its encoder's tokens: a decoder's own mask is causal."""
    return mask_function is bidirectional_mask_function and bool(
        getattr(config, "is_decoder", False)
    )


def _with_row_of(also: Any, config: Any, row: torch.Tensor, q_offset: Any, kv_offset: int) -> Any:
    """`row` [batch, 1, 1, kv_length] joined with the sparse mask's row of the query at q_offset, in
    the element type that says so."""
    if not isinstance(q_offset, torch.Tensor):
        q_offset = torch.full((), q_offset, dtype=torch.int64, device=row.device)
    own = operators.mask_rows(
        mask_text(also), q_offset, kv_offset, row.shape[0], config.num_attention_heads, row.shape[3]
    )
    return (row & own).to(JOINED_ROW)


def _refuse_capture(padding: torch.Tensor) -> None:
    """A plan for one batch's padding would be replayed for another's, and a bias in its place needs
    plans that no run before the capture has made."""
    if not torch.compiler.is_compiling() and torch.cuda.is_current_stream_capturing():
        raise Unsupported(
            "attention_mask: expected stof.transformers.register(plan_padding=False) before a run "
            "of the model and its capture in a CUDA graph, since padding is read where it is "
            f"planned for, got padding of shape {list(padding.shape)} with plan_padding=True"
        )


def stof_mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: Any = 0,
    kv_offset: int = 0,
    mask_function: Callable = causal_mask_function,
    attention_mask: torch.Tensor | None = None,
    use_vmap: bool = False,
    device: Any = "cpu",
    config: Any = None,
    allow_is_causal_skip: bool = True,
    **hints: Any,
) -> HostMask | torch.Tensor:
    """A HostMask; or for the one query of a step that may be compiled booleans [batch, 1, 1,
    kv_length], which change from step to step without a new plan or graph. Where a sparse mask
    is in them they are of JOINED_ROW, [batch, heads, 1, kv_length].

    transformers clears allow_is_causal_skip for such steps. The other hints say when other
    attentions need no mask, and their element type: there is nothing in them to honour here.
    """
    also = None if _is_cross(config, mask_function) else sparse.of_config(config)
    kv_offset = int(kv_offset)
    recorded = is_tracing(attention_mask if attention_mask is not None else q_offset)
    on_device = isinstance(q_offset, torch.Tensor)
    if q_length == 1 and (recorded or on_device or not allow_is_causal_skip):
        row = sdpa_mask(
            batch_size=batch_size,
            q_length=1,
            kv_length=kv_length,
            q_offset=q_offset,
            kv_offset=kv_offset,
            mask_function=mask_function,
            attention_mask=attention_mask,
            allow_is_causal_skip=False,
            use_vmap=use_vmap,
            device=device,
        )
        return row if also is None else _with_row_of(also, config, row, q_offset, kv_offset)

    shape = (batch_size, 1, q_length, kv_length)
    padding = prepare_padding_mask(attention_mask, kv_length, kv_offset)
    if padding is not None:
        padding = padding[:, kv_offset : kv_offset + kv_length]
    if recorded:
        if padding is not None and Settings.plan_padding:
            _refuse_capture(padding)
        return _recorded_mask(shape, q_offset, kv_offset, mask_function, padding, also)

    q_offset = int(q_offset)
    mask = resolved.positioned(resolved.mask_of_values(*traced(mask_function)), q_offset, kv_offset)
    row = None
    if padding is not None and Settings.plan_padding:
        mask = resolved.joined(mask, resolved.mask_of_padding(padding))
    elif padding is not None:
        row = padding[:, None, None, :]
    if also is not None:
        also = resolved.positioned(resolved.mask_of(also), q_offset, kv_offset)
    return HostMask(shape, mask, row, also)


def _recorded_mask(
    shape: tuple[int, int, int, int],
    q_offset: Any,
    kv_offset: int,
    mask_function: Callable,
    padding: torch.Tensor | None,
    also: Any,
) -> HostMask:
    """Nothing can be read now: tables become a mask when the graph runs, and padding a bias."""
    text, tables = traced_in_graph(mask_function)
    bound = None
    mask = None
    if tables:
        bound = operators.mask_from_values(text, tables)
    else:
        mask = 'predicate("' + text + '")'
    start = None
    if isinstance(q_offset, torch.Tensor):
        start, q_offset = q_offset.clone(), 0  # the cache counts on in that very tensor
    row = None if padding is None else padding[:, None, None, :]
    return RecordedHostMask(shape, mask, bound, row, also, q_offset, start, kv_offset)
