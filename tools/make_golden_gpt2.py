#!/usr/bin/env python3
"""Writes tests/data/gpt2_golden.safetensors and gpt2_golden.json: one set of small seeded GPT-2 weights, and
the logits that transformers computes from it in float64 under several configurations, each of which changes a
field that changes numbers. Weights are scaled so that attention is far from uniform.

    pip install torch transformers safetensors && tools/make_golden_gpt2.py
"""
import json
import pathlib

import torch
from safetensors.torch import save_file
from transformers import GPT2Config, GPT2LMHeadModel

DATA = pathlib.Path(__file__).resolve().parent.parent / "tests" / "data"
BASE = {"model_type": "gpt2", "vocab_size": 50, "n_positions": 64, "n_embd": 24, "n_layer": 2, "n_head": 3,
        "n_inner": None, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5}
# name: fields that differ from BASE
CASES = {
    "base": {},
    "n_inner": {"n_inner": 40},
    "n_head": {"n_head": 6},
    "n_layer": {"n_layer": 1},
    "relu": {"activation_function": "relu"},
    "gelu": {"activation_function": "gelu"},
    "layer_norm_epsilon": {"layer_norm_epsilon": 0.05},
    "scale_attn_weights": {"scale_attn_weights": False},
    "untied": {"tie_word_embeddings": False},
}
NUM_TOKENS = 23


def full_weights():
    """Of the largest case; a smaller n_inner takes the leading rows and columns."""
    generator = torch.Generator().manual_seed(8)
    model = GPT2LMHeadModel(GPT2Config(**BASE, tie_word_embeddings=False))
    weights = {}
    for name, tensor in model.state_dict().items():
        norm = ".ln_" in name and name.endswith("weight")
        scale = 0.2 if norm or name.endswith("bias") else 0.5 if tensor.dim() == 2 else 0.3
        if "c_attn.weight" in name:
            scale = 1.0
        weights[name] = torch.randn(tensor.shape, generator=generator) * scale + (1 if norm else 0)
    return weights


def main():
    weights = full_weights()
    ids = torch.randint(0, BASE["vocab_size"], (NUM_TOKENS,), generator=torch.Generator().manual_seed(9))
    tensors = {f"weight.{name}": tensor for name, tensor in weights.items()}
    cases = []
    for name, changes in CASES.items():
        config = {**BASE, **changes}
        model = GPT2LMHeadModel(GPT2Config(**config, attn_implementation="eager")).double().eval()
        own = {}
        for key, tensor in model.state_dict().items():
            if key == "lm_head.weight" and config.get("tie_word_embeddings", True):
                continue
            own[key] = weights[key][tuple(slice(extent) for extent in tensor.shape)].double()
        missing = model.load_state_dict(own, strict=False).missing_keys
        assert set(missing) <= {"lm_head.weight"}, missing
        model.tie_weights()
        with torch.no_grad():
            logits = model(ids[None]).logits[0]
        tensors[f"logits.{name}"] = logits.float().contiguous()
        cases.append({"name": name, "config": config, "tensors": {key: list(value.shape) for key, value in own.items()}})
    save_file(tensors, DATA / "gpt2_golden.safetensors")
    (DATA / "gpt2_golden.json").write_text(json.dumps({"ids": ids.tolist(), "cases": cases}))


if __name__ == "__main__":
    main()
