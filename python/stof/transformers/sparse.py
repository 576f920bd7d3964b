"""The user's sparse mask: of a config, or of a `with` block."""

from __future__ import annotations

import contextlib
import contextvars
import warnings
from dataclasses import dataclass
from typing import Any, Iterator

import torch

from .. import masks
from ..errors import InvalidArgument, Unsupported
from ..locks import Locked


@dataclass
class _Block:
    """An open block: its mask joined with those of the blocks around it."""

    mask: Any
    outer: _Block | None
    used: bool = False  # some attention asked for it


_in_block: contextvars.ContextVar[_Block | None] = contextvars.ContextVar(
    "stof_sparse_mask", default=None
)
# How many blocks are open in the process. torch.compile can guard on this, not on a context
# variable.
_num_open = 0
_count = Locked()


def _checked(mask: Any, what: str) -> Any:
    """A Mask, or text."""
    if isinstance(mask, str) and not mask.strip():
        raise InvalidArgument(
            f"{what}: expected a stof.Mask, its text or None, got {mask!r}; None is no mask"
        )
    if isinstance(mask, (str, masks.Mask)):
        return mask
    raise InvalidArgument(
        f"{what}: expected a stof.Mask, its text or None, got {type(mask).__name__}; a boolean "
        "tensor goes through stof.masks.dense()"
    )


@contextlib.contextmanager
def sparse_mask(mask: Any) -> Iterator[None]:
    """Within the block, models with the "stof" attention see `mask` (a stof.Mask or its text) too.

    It is joined by & with each model's own mask and with config.stof_mask: a causal model stays
    causal, padding stays hidden. Positions count from the first token of the sequence, cached ones
    and padding included. Cross-attention is left as it is. Blocks nest, and hold for the current
    thread or task. A model under torch.compile cannot see the block and refuses: set
    config.stof_mask there. Other attentions than "stof" do not see it: where none of stof's ran,
    the block ends with a warning.

    >>> with stof.transformers.sparse_mask("window(512, 512) | global(1, 1)"):
    ...     model(**inputs)
    """
    global _num_open
    chosen = _checked(mask, "mask")
    if isinstance(chosen, str):
        chosen = masks.parse(chosen)
    outer = _in_block.get()
    block = _Block(chosen if outer is None else outer.mask & chosen, outer)
    token = _in_block.set(block)
    with _count._lock:
        _num_open += 1
    try:
        yield
    finally:
        with _count._lock:
            _num_open -= 1
        _in_block.reset(token)
    if not block.used:
        warnings.warn(
            'sparse_mask: expected a model with the attention "stof" to run within the block, got none '
            f"in its thread, so that {chosen} had no effect; load the model with "
            'attn_implementation="stof", or call model.set_attn_implementation("stof")',
            stacklevel=3,  # past contextlib
        )


def of_config(config: Any) -> Any:
    """The sparse mask that holds now for a model with this config: a Mask, text, or None."""
    own = getattr(config, "stof_mask", None)
    if own is not None:
        own = _checked(own, "config.stof_mask")
    if torch.compiler.is_compiling():
        if _num_open:
            raise Unsupported(
                "sparse_mask: expected no open block while torch.compile traces the model, since "
                "compiled code cannot tell whose block it is; set model.config.stof_mask instead"
            )
        return own
    block = _in_block.get()
    if block is None:
        return own
    around: _Block | None = block
    while around is not None and not around.used:
        around.used, around = True, around.outer
    if own is None:
        return block.mask
    return block.mask & (masks.parse(own) if isinstance(own, str) else own)
