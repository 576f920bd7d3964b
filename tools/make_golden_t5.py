#!/usr/bin/env python3
"""Writes tests/data/t5_golden.safetensors and t5_golden.json: one set of small seeded T5 weights, and what
transformers computes from it in float64 under many configurations, each of which changes a field (or which
tensors a file holds) that changes numbers: the encoder's last hidden state, logits of given decoder ids, and the
ids that greedy generation writes. Weights are scaled so that attention is far from uniform. Folders are read by
from_pretrained(), so that its own rules of which matrices are tied count.

    pip install torch transformers safetensors && tools/make_golden_t5.py
"""
import json
import pathlib
import tempfile

import torch
from safetensors.torch import save_file
from transformers import MT5ForConditionalGeneration, T5ForConditionalGeneration

DATA = pathlib.Path(__file__).resolve().parent.parent / "tests" / "data"
CLASSES = {"t5": T5ForConditionalGeneration, "mt5": MT5ForConditionalGeneration}
BASE = {"model_type": "t5", "vocab_size": 40, "d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 2,
        "num_decoder_layers": 2, "num_heads": 2, "relative_attention_num_buckets": 8,
        "relative_attention_max_distance": 12, "layer_norm_epsilon": 1e-6, "feed_forward_proj": "relu",
        "is_encoder_decoder": True, "pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0}
HEAD, OWN = "lm_head.weight", "decoder.embed_tokens.weight"
# name: (fields that differ from BASE, None: left out; tensors that the file holds besides)
CASES = {
    "base": ({}, []),
    "num_layers": ({"num_layers": 1}, []),
    "num_decoder_layers": ({"num_decoder_layers": 1}, []),
    "num_decoder_layers by default": ({"num_decoder_layers": None, "num_layers": 1}, []),
    "d_kv": ({"d_kv": 12}, []),
    "num_heads": ({"num_heads": 3}, []),
    "d_ff": ({"d_ff": 16}, []),
    "buckets": ({"relative_attention_num_buckets": 4}, []),
    "max_distance": ({"relative_attention_max_distance": 7}, []),
    "max_distance by default": ({"relative_attention_max_distance": None}, []),
    "layer_norm_epsilon": ({"layer_norm_epsilon": 0.05}, []),
    "gelu": ({"feed_forward_proj": "gelu"}, []),
    "gated-gelu": ({"feed_forward_proj": "gated-gelu"}, []),
    "gated-silu": ({"feed_forward_proj": "gated-silu"}, []),
    "decoder_start_token_id": ({"decoder_start_token_id": 5}, []),
    "head of its own": ({}, [HEAD]),
    "not scaled": ({"tie_word_embeddings": False}, [HEAD]),
    "not scaled, tied": ({"tie_word_embeddings": False}, []),
    "scale_decoder_outputs": ({"tie_word_embeddings": True, "scale_decoder_outputs": False}, [OWN]),
    "mt5": ({"model_type": "mt5", "feed_forward_proj": None}, [HEAD]),
}
NUM_SOURCE, NUM_TARGET, NUM_WRITTEN = 19, 12, 16


def full_weights():
    """Of the largest case; a smaller one takes the leading rows and columns."""
    generator = torch.Generator().manual_seed(11)

    def normal(*shape, scale, mean=0.0):
        return (torch.randn(*shape, generator=generator) * scale + mean).to(torch.float32)

    weights = {"shared.weight": normal(40, 16, scale=0.6), HEAD: normal(40, 16, scale=0.4),
               OWN: normal(40, 16, scale=0.6)}
    for stack in ("encoder", "decoder"):
        weights[f"{stack}.final_layer_norm.weight"] = normal(16, scale=0.2, mean=1.0)
        weights[f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"] = normal(8, 3, scale=1.5)
        attentions = ["SelfAttention"] + (["EncDecAttention"] if stack == "decoder" else [])
        for i in range(2):
            for layer, attention in enumerate(attentions):
                name = f"{stack}.block.{i}.layer.{layer}."
                weights[name + "layer_norm.weight"] = normal(16, scale=0.2, mean=1.0)
                for part, scale in (("q", 0.25), ("k", 0.25), ("v", 0.3)):
                    weights[f"{name}{attention}.{part}.weight"] = normal(24, 16, scale=scale)
                weights[f"{name}{attention}.o.weight"] = normal(16, 24, scale=0.5)
            name = f"{stack}.block.{i}.layer.{len(attentions)}."
            weights[name + "layer_norm.weight"] = normal(16, scale=0.2, mean=1.0)
            for part in ("wi", "wi_0", "wi_1"):
                weights[f"{name}DenseReluDense.{part}.weight"] = normal(24, 16, scale=0.3)
            weights[f"{name}DenseReluDense.wo.weight"] = normal(16, 24, scale=0.5)
    return weights


def model_of(fields, extra, weights):
    """Of a folder as it may be published, and the shapes of the tensors in it."""
    model_class = CLASSES[fields["model_type"]]
    config = model_class.config_class(**{k: v for k, v in fields.items() if k != "model_type"})
    optional = {HEAD, OWN, "encoder.embed_tokens.weight"}
    state = {}
    for name, value in model_class(config).state_dict().items():
        if name not in optional or name in extra:
            state[name] = weights[name][tuple(slice(0, n) for n in value.shape)].contiguous()
    with tempfile.TemporaryDirectory() as folder:
        save_file(state, pathlib.Path(folder) / "model.safetensors", metadata={"format": "pt"})
        (pathlib.Path(folder) / "config.json").write_text(json.dumps(fields))
        model = model_class.from_pretrained(folder, attn_implementation="eager").double().eval()
    return model, {name: list(value.shape) for name, value in state.items()}


def greedy(model, source, start):
    """generate() of 5.17 makes a cache of num_layers layers, and fails where num_decoder_layers is another."""
    written = []
    with torch.no_grad():
        while len(written) < NUM_WRITTEN and written[-1:] != [1]:
            logits = model(input_ids=source[None], decoder_input_ids=torch.tensor([[start, *written]])).logits
            top = logits[0, -1].topk(2)
            if top.values[0] - top.values[1] < 1e-4:
                break  # a choice that float32 may not make
            written.append(top.indices[0].item())
    return written


def main():
    weights = full_weights()
    generator = torch.Generator().manual_seed(12)
    source = torch.randint(2, 40, (NUM_SOURCE,), generator=generator)
    target = torch.randint(2, 40, (NUM_TARGET,), generator=generator)
    tensors = {f"weight.{name}": tensor for name, tensor in weights.items()}
    cases, logits = [], {}
    for name, (changes, extra) in CASES.items():
        fields = {k: v for k, v in {**BASE, **changes}.items() if v is not None}
        model, shapes = model_of(fields, extra, weights)
        read = torch.cat([torch.tensor([fields["decoder_start_token_id"]]), target])
        with torch.no_grad():
            out = model(input_ids=source[None], decoder_input_ids=read[None])
        written = greedy(model, source, fields["decoder_start_token_id"])
        logits[name] = out.logits[0].float().contiguous()
        tensors[f"logits.{name}"] = logits[name]
        tensors[f"encoded.{name}"] = out.encoder_last_hidden_state[0].float().contiguous()
        top = out.logits[0].topk(2).values
        print(f"{name}: largest logit {out.logits.abs().max():.2f}, narrowest choice {(top[:, 0] - top[:, 1]).min():.4f}")
        cases.append({"name": name, "config": fields, "tensors": shapes, "written": written})
    first_of = {}
    for name, value in logits.items():
        same = first_of.setdefault(tuple(value.flatten().tolist()), name)
        assert same == name, f"{name} gives what {same} gives: its field is not put to the test"
    save_file(tensors, DATA / "t5_golden.safetensors")
    golden = {"source": source.tolist(), "target": target.tolist(), "cases": cases}
    (DATA / "t5_golden.json").write_text(json.dumps(golden, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
