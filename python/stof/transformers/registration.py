"""register(): "stof" in transformers' registries of attentions and mask functions."""

from __future__ import annotations

from typing import Iterable

from transformers import AttentionInterface, AttentionMaskInterface

from ..errors import InvalidArgument
from ..values import truth
from . import attention_function, mask_function
from .registry_guard import guard_models
from .settings import Settings

NAME = "stof"


def register(*, plan_padding: bool = True, ignore: Iterable[str] = ()) -> None:
    """Adds the attention implementation "stof", with its mask function, to transformers.

    plan_padding: read each batch's padding mask and plan for it, so that padding costs nothing;
    on a GPU reading waits for it once a forward pass. False hands the padding to the kernels as
    a bias [batch, 1, 1, keys] instead, so that a forward pass can be captured in a CUDA graph.
    ignore: names of arguments of an attention module that have no effect on its result; others that
    stof does not know are refused.

    From then on a model whose class computes its attention past the registry (DeBERTa, BLOOM,
    Falcon) is refused with this implementation, which it would ignore, and a model made with
    another attention while its config has a stof_mask is warned about.

    Calling it again sets both options anew. Needs transformers 5 (AttentionMaskInterface).
    """
    if isinstance(ignore, str):
        raise InvalidArgument(
            f"ignore: expected names of arguments in a list, got {ignore!r}; pass [{ignore!r}]"
        )
    Settings.plan_padding = truth(plan_padding, "plan_padding")
    Settings.ignored = frozenset(ignore)
    AttentionInterface.register(NAME, attention_function.stof_attention)
    AttentionMaskInterface.register(NAME, mask_function.stof_mask)
    guard_models(NAME)
