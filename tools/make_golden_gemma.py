#!/usr/bin/env python3
"""Writes tests/data/gemma_golden.safetensors and gemma_golden.json: one set of small seeded weights, and the
logits that transformers computes from it with Gemma 3's text models in float64 under many configurations, each
of which changes a field that changes numbers.

    pip install torch transformers safetensors && tools/make_golden_gemma.py
"""
import json

import torch
from safetensors.torch import save_file
from transformers import Gemma3ForCausalLM, Gemma3TextConfig

from make_golden_llama import DATA, NUM_TOKENS

BASE = {"model_type": "gemma3_text", "hidden_size": 24, "intermediate_size": 24, "num_hidden_layers": 3,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "vocab_size": 50,
        "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "hidden_activation": "gelu_pytorch_tanh",
        "query_pre_attn_scalar": 16, "sliding_window": 5, "sliding_window_pattern": 3, "rope_theta": 100.0,
        "rope_local_base_freq": 10.0, "attention_bias": False, "attn_logit_softcapping": None,
        "final_logit_softcapping": None, "use_bidirectional_attention": False}
LINEAR = {"rope_type": "linear", "factor": 8.0}
# name: fields that differ from BASE (None: left out)
CASES = {
    "base": {},
    "rms_norm_eps": {"rms_norm_eps": 0.05},
    "query_pre_attn_scalar": {"query_pre_attn_scalar": 5},
    "sliding_window": {"sliding_window": 2},
    "sliding_window_pattern": {"sliding_window_pattern": 2},
    "layer_types": {"layer_types": ["full_attention", "sliding_attention", "sliding_attention"]},
    "all local by default": {"sliding_window_pattern": None},
    "rope_theta": {"rope_theta": 1000.0},
    "rope_theta by default": {"rope_theta": None},
    "rope_local_base_freq": {"rope_local_base_freq": 30.0},
    "rope_local_base_freq by default": {"rope_local_base_freq": None},
    "rope_scaling": {"rope_scaling": LINEAR},
    "rope_parameters": {"rope_theta": None, "rope_local_base_freq": None,
                        "rope_parameters": {"full_attention": {**LINEAR, "rope_theta": 500.0},
                                            "sliding_attention": {"rope_type": "default", "rope_theta": 20.0}}},
    "heads": {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16},
    "layers": {"num_hidden_layers": 2},
    "untied": {"tie_word_embeddings": False},
}


def full_weights():
    """By role; a case takes the leading rows and columns it needs."""
    generator = torch.Generator().manual_seed(8)

    def normal(*shape, scale):
        return (torch.randn(*shape, generator=generator) * scale).to(torch.float32)

    weights = {"model.embed_tokens.weight": normal(50, 24, scale=0.4), "lm_head.weight": normal(50, 24, scale=0.3),
               "model.norm.weight": normal(24, scale=0.2)}
    for i in range(3):
        name = f"model.layers.{i}."
        for part, width in (("input_layernorm", 24), ("post_attention_layernorm", 24), ("pre_feedforward_layernorm", 24),
                            ("post_feedforward_layernorm", 24), ("self_attn.q_norm", 16), ("self_attn.k_norm", 16)):
            weights[f"{name}{part}.weight"] = normal(width, scale=0.3)
        for part, rows, columns, scale in (("self_attn.q_proj", 32, 24, 0.4), ("self_attn.k_proj", 16, 24, 0.4),
                                           ("self_attn.v_proj", 16, 24, 0.2), ("self_attn.o_proj", 24, 32, 0.2),
                                           ("mlp.gate_proj", 24, 24, 0.3), ("mlp.up_proj", 24, 24, 0.3),
                                           ("mlp.down_proj", 24, 24, 0.2)):
            weights[f"{name}{part}.weight"] = normal(rows, columns, scale=scale)
    return weights


def model_of(fields, weights):
    settings = {k: v for k, v in fields.items() if k != "model_type"}
    config = Gemma3TextConfig(**json.loads(json.dumps(settings)), attn_implementation="eager")
    model = Gemma3ForCausalLM(config).double().eval()
    state = {name: weights[name][tuple(slice(0, n) for n in value.shape)].double()
             for name, value in model.state_dict().items()}
    if config.tie_word_embeddings:
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
    model.load_state_dict(state)
    return model


def main():
    weights = full_weights()
    generator = torch.Generator().manual_seed(9)
    ids = torch.randint(0, 50, (1, NUM_TOKENS), generator=generator)
    cases, logits = [], {}
    for name, changes in CASES.items():
        fields = {k: v for k, v in {**BASE, **changes}.items() if v is not None or k in BASE and BASE[k] is None}
        model = model_of(fields, weights)
        with torch.no_grad():
            logits[name] = model(ids).logits[0].float().contiguous()
        tied = model.config.tie_word_embeddings
        cases.append({"name": name, "config": fields,
                      "tensors": {k: list(v.shape) for k, v in model.state_dict().items()
                                  if k != "lm_head.weight" or not tied}})
    first_of = {}
    for name, value in logits.items():
        same = first_of.setdefault(tuple(value.flatten().tolist()), name)
        assert same == name, f"{name} gives what {same} gives: its field is not put to the test"
    save_file({**{f"weight.{k}": v for k, v in weights.items()}, **{f"logits.{k}": v for k, v in logits.items()}},
              DATA / "gemma_golden.safetensors")
    golden = {"ids": ids[0].tolist(), "cases": cases}
    (DATA / "gemma_golden.json").write_text(json.dumps(golden, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
