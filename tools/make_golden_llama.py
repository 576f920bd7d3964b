#!/usr/bin/env python3
"""Writes tests/data/llama_golden.safetensors and llama_golden.json: one set of small seeded weights, and
the logits that transformers computes from it in float64 under many configurations, each of which changes a
field that changes numbers. Weights are scaled so that attention is far from uniform.

    pip install torch transformers safetensors && tools/make_golden_llama.py
"""
import json
import pathlib

import torch
from safetensors.torch import save_file
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers import LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM, Qwen2Config, Qwen2ForCausalLM

DATA = pathlib.Path(__file__).resolve().parent.parent / "tests" / "data"
CLASSES = {"llama": (LlamaConfig, LlamaForCausalLM), "mistral": (MistralConfig, MistralForCausalLM),
           "qwen2": (Qwen2Config, Qwen2ForCausalLM)}
BASE = {"model_type": "llama", "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 3,
        "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 8, "vocab_size": 50,
        "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": False,
        "attention_bias": False, "mlp_bias": False, "rope_theta": 100.0}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 16}
# name: fields that differ from BASE (None: left out)
CASES = {
    "base": {},
    "rms_norm_eps": {"rms_norm_eps": 0.05},
    "rope_theta": {"rope_theta": 10.0},
    "rope_theta by default": {"rope_theta": None},
    "rope linear": {"rope_scaling": {"type": "linear", "factor": 4.0}},
    "rope llama3": {"rope_scaling": LLAMA3},
    "rope llama3 low": {"rope_scaling": {**LLAMA3, "low_freq_factor": 0.25}},
    "rope llama3 high": {"rope_scaling": {**LLAMA3, "high_freq_factor": 1.5}},
    "rope llama3 length": {"rope_scaling": {**LLAMA3, "original_max_position_embeddings": 40}},
    "rope_parameters": {"rope_theta": None, "rope_parameters": {"rope_type": "llama3", "rope_theta": 1000.0, **LLAMA3}},
    "yarn": {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}},
    "yarn attention_factor": {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "attention_factor": 1.0,
                                               "original_max_position_embeddings": 16}},
    "tied": {"tie_word_embeddings": True},
    "attention_bias": {"attention_bias": True},
    "mlp_bias": {"mlp_bias": True},
    "heads": {"num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 16},
    "key_value_heads": {"num_key_value_heads": None, "num_attention_heads": 2},
    "head_dim by default": {"head_dim": None, "num_attention_heads": 3, "num_key_value_heads": 3},
    "layers": {"num_hidden_layers": 2},
    "mistral": {"model_type": "mistral", "sliding_window": 5},
    "mistral without window": {"model_type": "mistral", "sliding_window": None, "rms_norm_eps": 1e-4},
    "qwen2": {"model_type": "qwen2", "use_sliding_window": False, "sliding_window": 5},
    "qwen2 window": {"model_type": "qwen2", "use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1},
    "qwen2 layer_types": {"model_type": "qwen2", "use_sliding_window": True, "sliding_window": 5,
                          "layer_types": ["sliding_attention", "full_attention", "full_attention"]},
}
KEEP_NULL = {"sliding_window"}
# Scalings by their numbers alone, at the sizes of real models: name: (rope_parameters, other fields)
YARN = {"rope_type": "yarn", "rope_theta": 1000000.0, "factor": 4.0, "original_max_position_embeddings": 32768}
LONGROPE = {"rope_type": "longrope", "rope_theta": 10000.0, "original_max_position_embeddings": 4096,
            "short_factor": [1 + i / 16 for i in range(32)], "long_factor": [2 + i for i in range(32)]}
ROPES = {
    "yarn": (YARN, {}),
    "yarn factor": ({**YARN, "factor": 2.0}, {}),
    "yarn factor below 1": ({**YARN, "factor": 0.5}, {}),
    "yarn theta": ({**YARN, "rope_theta": 10000.0}, {}),
    "yarn length": ({**YARN, "original_max_position_embeddings": 2048}, {}),
    "yarn length of the model": (YARN, {"original_max_position_embeddings": 8192}),
    "yarn without length": ({k: v for k, v in YARN.items() if k != "original_max_position_embeddings"}, {}),
    "yarn beta_fast": ({**YARN, "beta_fast": 8.0}, {}),
    "yarn beta_slow": ({**YARN, "beta_slow": 4}, {}),
    "yarn betas of 0": ({**YARN, "beta_fast": 0, "beta_slow": 0, "truncate": False}, {}),
    "yarn between two pairs": ({**YARN, "beta_fast": 1.0, "beta_slow": 1.0, "truncate": False}, {}),
    "yarn attention_factor": ({**YARN, "attention_factor": 1.5}, {}),
    "yarn mscale": ({**YARN, "mscale": 0.707, "mscale_all_dim": 1.0}, {}),
    "yarn mscale alone": ({**YARN, "mscale": 0.707, "factor": 8.0}, {}),
    "longrope": (LONGROPE, {"max_position_embeddings": 4096}),
    "longrope length of the model": ({**LONGROPE, "factor": 32.0}, {"max_position_embeddings": 2048, "original_max_position_embeddings": 2048}),
    "longrope factor": ({**LONGROPE, "factor": 32.0}, {"max_position_embeddings": 4096}),
    "longrope attention_factor": ({**LONGROPE, "attention_factor": 1.3}, {"max_position_embeddings": 4096}),
    "dynamic": ({"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 4.0}, {}),
    "llama3": ({**LLAMA3, "rope_theta": 500000.0, "original_max_position_embeddings": 8192}, {}),
    "llama3 without length": ({**{k: v for k, v in LLAMA3.items() if k != "original_max_position_embeddings"},
                               "rope_theta": 500000.0}, {}),
}
NUM_TOKENS = 23
# Every size a case asks for is a part of these.
MAX = {"hidden": 24, "inner": 40, "vocab": 50, "rows": 48}


def full_weights():
    """By role; a case takes the leading rows and columns it needs."""
    generator = torch.Generator().manual_seed(6)

    def normal(*shape, scale):
        return (torch.randn(*shape, generator=generator) * scale).to(torch.float32)

    weights = {"model.embed_tokens.weight": normal(50, 24, scale=1.0), "lm_head.weight": normal(50, 24, scale=0.3),
               "model.norm.weight": 1 + normal(24, scale=0.2)}
    for i in range(3):
        name = f"model.layers.{i}."
        for part in ("input_layernorm", "post_attention_layernorm"):
            weights[f"{name}{part}.weight"] = 1 + normal(24, scale=0.2)
        for part, rows, columns, scale in (("self_attn.q_proj", 48, 24, 0.4), ("self_attn.k_proj", 48, 24, 0.4),
                                           ("self_attn.v_proj", 48, 24, 0.2), ("self_attn.o_proj", 24, 48, 0.2),
                                           ("mlp.gate_proj", 40, 24, 0.3), ("mlp.up_proj", 40, 24, 0.3),
                                           ("mlp.down_proj", 24, 40, 0.2)):
            weights[f"{name}{part}.weight"] = normal(rows, columns, scale=scale)
            weights[f"{name}{part}.bias"] = normal(rows, scale=0.3)
    return weights


def fields_of(changes):
    fields = {**BASE, **changes}
    if fields["model_type"] != "llama":
        for name in ("attention_bias", "mlp_bias"):
            fields.pop(name)
    return {k: v for k, v in fields.items() if v is not None or k in KEEP_NULL}


def model_of(fields, weights):
    config_class, model_class = CLASSES[fields["model_type"]]
    settings = {k: v for k, v in fields.items() if k != "model_type"}
    config = config_class(**settings, attn_implementation="eager")
    model = model_class(config).double().eval()
    state = {}
    for name, value in model.state_dict().items():
        state[name] = weights[name][tuple(slice(0, n) for n in value.shape)].double()
    if fields["tie_word_embeddings"]:
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
    model.load_state_dict(state)
    return model


def ropes():
    cases = []
    for name, (parameters, others) in ROPES.items():
        fields = {"max_position_embeddings": 131072, **others, "rope_parameters": parameters}
        config = LlamaConfig(hidden_size=256, num_attention_heads=4, head_dim=64, **json.loads(json.dumps(fields)))
        frequencies, factor = ROPE_INIT_FUNCTIONS[parameters["rope_type"]](config, "cpu")
        cases.append({"name": name, "config": fields, "frequencies": frequencies.tolist(), "attention_factor": factor})
        same = [c["name"] for c in cases[:-1] if c["frequencies"] == cases[-1]["frequencies"] and
                c["attention_factor"] == factor]
        assert not same, f"{name} gives what {same} gives: its field is not put to the test"
    return cases


def main():
    weights = full_weights()
    generator = torch.Generator().manual_seed(7)
    ids = torch.randint(0, 50, (1, NUM_TOKENS), generator=generator)
    cases, logits = [], {}
    for name, changes in CASES.items():
        fields = fields_of(changes)
        model = model_of(fields, weights)
        with torch.no_grad():
            logits[name] = model(ids).logits[0].float().contiguous()
        cases.append({"name": name, "config": fields, "tensors": {k: list(v.shape) for k, v in model.state_dict().items()
                                                                  if k != "lm_head.weight" or
                                                                  not fields["tie_word_embeddings"]}})
    first_of = {}
    for name, value in logits.items():
        same = first_of.setdefault(tuple(value.flatten().tolist()), name)
        assert same == name, f"{name} gives what {same} gives: its field is not put to the test"
    save_file({**{f"weight.{k}": v for k, v in weights.items()}, **{f"logits.{k}": v for k, v in logits.items()}},
              DATA / "llama_golden.safetensors")
    golden = {"ids": ids[0].tolist(), "cases": cases, "ropes": ropes()}
    (DATA / "llama_golden.json").write_text(json.dumps(golden, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
