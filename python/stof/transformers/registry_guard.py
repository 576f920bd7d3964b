"""Models that would drop a sparse mask without a word: refused, or warned about.

transformers lets a model of a class that calls its attention itself, past the registry, be made
with any registered implementation, and then ignores it: that is refused. A saved config keeps its
stof_mask but not its attention: a model made of it with another attention is warned about.
"""

from __future__ import annotations

import functools
import sys
import warnings
from typing import Any

from transformers import PreTrainedModel

from ..errors import Unsupported

# How the modeling files of transformers name the registry when they use it.
_REGISTRY = "ALL_ATTENTION_FUNCTIONS"


def _has_own_attention(module: Any) -> bool:
    return any(
        isinstance(value, type)
        and name.endswith("Attention")
        and value.__module__ == module.__name__
        for name, value in vars(module).items()
    )


def _warn_of_mask(config: Any, attn_implementation: Any, name: str) -> None:
    """Where the config has a sparse mask that this attention, a name or a dict of sub-configs'
    names, ignores."""
    mask = getattr(config, "stof_mask", None)
    if mask is None or isinstance(attn_implementation, dict) or attn_implementation == name:
        return
    warnings.warn(
        f"config.stof_mask: expected attn_implementation={name!r} beside {mask}, got "
        f"{attn_implementation!r}, which ignores the mask; give attn_implementation={name!r} again "
        "when loading (it is not saved with the config), or set config.stof_mask to None",
        stacklevel=3,
    )


def guard_models(name: str) -> None:
    """From now on making a model with the attention `name` fails where its file has attentions of
    its own and does not use the registry, and making one with another attention warns where its
    config has a sparse mask. Calling it again changes nothing."""
    check = PreTrainedModel._check_and_adjust_attn_implementation
    if getattr(check, "stof_guard", False):
        return

    @functools.wraps(check)
    def guarded(self: Any, attn_implementation: Any, *args: Any, **kwargs: Any) -> Any:
        module = sys.modules.get(type(self).__module__)
        if (
            attn_implementation == name
            and module is not None
            and not hasattr(module, _REGISTRY)
            and _has_own_attention(module)
        ):
            raise Unsupported(
                f"attn_implementation: expected one that {type(self).__name__} can use, got {name!r}; "
                "this class computes its attention itself and would ignore stof and its masks. Use "
                "attn_implementation='eager'"
            )
        chosen = check(self, attn_implementation, *args, **kwargs)
        _warn_of_mask(getattr(self, "config", None), chosen, name)
        return chosen

    guarded.stof_guard = True  # type: ignore[attr-defined]
    PreTrainedModel._check_and_adjust_attn_implementation = guarded
