"""Attention weights, which stof never has: asking for them is an error."""

from __future__ import annotations

from typing import NoReturn

import torch

from ..errors import Unsupported

try:
    from transformers.utils.output_capturing import _active_collector
except ImportError:  # a transformers that collects outputs in another way hands the flag down
    _active_collector = None


def refuse() -> NoReturn:
    raise Unsupported(
        "output_attentions: expected False for the attention stof, which never has the weights of "
        "all pairs; load the model with attn_implementation='eager' to look at them"
    )


def refuse_if_captured() -> None:
    """Where the model collects its layers' weights without telling the attention function."""
    if _active_collector is None:
        return
    if torch.compiler.is_compiling():  # which cannot trace get()
        wanted = _active_collector.global_var
    else:
        wanted = _active_collector.get()
    if wanted and any([name.endswith("attentions") for name in wanted]):
        refuse()
