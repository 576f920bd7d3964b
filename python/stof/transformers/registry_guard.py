"""Models that call their attention themselves, past transformers' registry, are refused.

transformers lets a model of such a class be made with any registered implementation, and then
ignores it: a sparse mask would be dropped without a word.
"""

from __future__ import annotations

import functools
import sys
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


def refuse_models_without_registry(name: str) -> None:
    """From now on making a model with the attention `name` fails where its file has attentions of
    its own and does not use the registry. Calling it again changes nothing."""
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
        return check(self, attn_implementation, *args, **kwargs)

    guarded.stof_guard = True  # type: ignore[attr-defined]
    PreTrainedModel._check_and_adjust_attn_implementation = guarded
