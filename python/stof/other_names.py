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
    "is_causal": 'mask="causal" where it is True, and leave it out where it is False',
    "causal": 'mask="causal", with alignment="bottom_right" where there are fewer queries than keys',
    "window_size": "mask=stof.masks.window(left, right)",
    "sliding_window": "mask=stof.masks.causal() & stof.masks.window(sliding_window - 1, 0)",
    "softmax_scale": "scale=",
    "sm_scale": "scale=",
    "scaling": "scale=",
    "logits_soft_cap": "softcap=",
    "alibi_slopes": "alibi=",
    "cu_seqlens_k": "cu_seqlens_kv=",
    "s_aux": "sink=",
    "sinks": "sink=",
    "return_softmax_lse": "return_lse=True",
    "return_attn_probs": "return_lse=True; probabilities are never formed",
    "out": "out = stof.plan(...).run(q, k, v, out=out): calls of a plan write into given memory",
    "mask_mod": "block_mask=create_block_mask(mask_mod, ...) of stof.compat.flex.flex_attention()",
    "heads": "num_heads=",
    "num_q_heads": "num_heads=",
    "num_kv_heads": "num_heads_kv=",
    "num_threads": "stof.plan(...).run(q, k, v, num_threads=...)",
    "seq": "seq_q=, and seq_kv= where it differs",
    "seq_len": "seq_q=, and seq_kv= where it differs",
    "batch_size": "batch=",
}

_DROPOUT = "leave it out: stof is for inference and has no dropout"
_LENGTHS = "leave it out: cu_seqlens_q and cu_seqlens_kv say it"
_NOT_NEEDED = {
    "dropout_p": _DROPOUT,
    "dropout": _DROPOUT,
    "max_seqlen_q": _LENGTHS,
    "max_seqlen_k": _LENGTHS,
    "max_seqlen_kv": _LENGTHS,
}

_IN_FLEX = {
    **dict.fromkeys(
        ("mask_mod", "is_causal", "causal", "window_size", "mask"),
        "write block_mask=create_block_mask(mask_mod, B, H, Q_LEN, KV_LEN), or call stof.attention() "
        "with a stof.Mask",
    ),
    **dict.fromkeys(
        ("attn_mask", "attention_mask", "attn_bias", "bias"),
        "index it in a mask_mod (boolean) or score_mod (added), or call stof.attention(mask=) or (bias=)",
    ),
    "dropout_p": _DROPOUT,
    "dropout": _DROPOUT,
}


def refuse(function: str, names: Any) -> None:
    """Raises TypeError, as Python does for arguments that a function does not have."""
    name = next(iter(names))
    hint = f"; write {_HERE[name]}" if name in _HERE else ""
    if name in _NOT_NEEDED:
        hint = f"; {_NOT_NEEDED[name]}"
    if function == "compat.flex.flex_attention":
        hint = f"; {_IN_FLEX[name]}" if name in _IN_FLEX else ""
    raise TypeError(f"stof.{function}() has no argument {name}={hint}")
