"""Drop-in for torch.nn.attention.flex_attention: the same names, stof's masks and kernels.

    from stof.compat.flex import create_block_mask, flex_attention

mask_mod and score_mod are traced into expressions, so no compiler runs for a mask and no array of
all pairs is made. docs/python.md says what can be traced.
"""

from typing import Any

try:
    import torch
except ImportError:
    raise ImportError(
        "stof.compat.flex: expected torch 2.6 or newer, got none; install it, or make masks by "
        "stof.masks"
    ) from None

try:
    from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex as _
    from torch.nn.attention.flex_attention import (
        BlockMask,
        and_masks,
        create_mask,
        noop_mask,
        or_masks,
    )
except ImportError:
    raise ImportError(
        f"stof.compat.flex: expected torch 2.6 or newer, got {torch.__version__}; make masks by "
        "stof.masks for older ones"
    ) from None

from .attention import flex_attention, to_stof_mask
from .block_mask import create_block_mask
from .failures import TraceWarning

__all__ = [
    "BlockMask",
    "TraceWarning",
    "and_masks",
    "create_block_mask",
    "create_mask",
    "flex_attention",
    "noop_mask",
    "or_masks",
    "to_stof_mask",
]


def __getattr__(name: str) -> Any:
    """AuxRequest and AuxOutput, which older versions of torch lack."""
    if name in ("AuxRequest", "AuxOutput"):
        import torch.nn.attention.flex_attention as torch_flex

        return getattr(torch_flex, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
