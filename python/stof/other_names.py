"""Arguments that attention functions elsewhere have, and what to write here."""

from __future__ import annotations

from typing import Any

_HERE = {
    "attn_mask": "mask= where it is boolean (true is visible), bias= in float32 where it is added",
    "attention_mask": "mask=(attention_mask != 0)[:, None, None, :] for a tokenizer's [batch, seq] of 0 "
    "and 1, bias= in float32 for an additive one",
    "key_padding_mask": "mask=~key_padding_mask[:, None, None, :] where true is padding",
    "attn_bias": "bias= in float32",
    "block_mask": "stof.compat.flex.flex_attention(), or mask=stof.compat.flex.to_stof_mask(block_mask)",
    "is_causal": 'mask="causal"',
    "causal": 'mask="causal", with alignment="bottom_right" where there are fewer queries than keys',
    "window_size": "mask=stof.masks.window(left, right)",
    "sliding_window": "mask=stof.masks.causal() & stof.masks.window(sliding_window - 1, 0)",
    "softmax_scale": "scale=",
    "sm_scale": "scale=",
    "scaling": "scale=",
    "logits_soft_cap": "softcap=",
    "alibi_slopes": "alibi=",
    "s_aux": "sink=",
    "sinks": "sink=",
    "return_softmax_lse": "return_lse=True",
    "return_attn_probs": "return_lse=True; probabilities are never formed",
    "dropout_p": "nothing: stof is for inference",
    "dropout": "nothing: stof is for inference",
}


def refuse(function: str, names: Any) -> None:
    """Raises TypeError, as Python does for arguments that a function does not have."""
    name = next(iter(names))
    hint = f"; write {_HERE[name]}" if name in _HERE else ""
    raise TypeError(f"stof.{function}() has no argument {name}={hint}")
