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


#: Names that some versions of torch lack, or that code imports although they are not public.
_OTHERS = (
    "AuxOutput",
    "AuxRequest",
    "FlexKernelOptions",
    "_mask_mod_signature",
    "_score_mod_signature",
)


def __getattr__(name: str) -> Any:
    """Names of torch's that need nothing of stof's."""
    if name in _OTHERS:
        import torch.nn.attention.flex_attention as torch_flex

        if hasattr(torch_flex, name):
            return getattr(torch_flex, name)
        raise AttributeError(f"{name}: torch {torch.__version__} has no such name; newer ones may")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
