#!/usr/bin/env python3
"""Makes a Hugging Face folder of a real shape with seeded random weights, where the published ones cannot be had:

    tools/make_seeded_checkpoint.py t5-base FOLDER [--seed 7] [--dtype bfloat16] [--tiny]

    gpt2           GPT2LMHeadModel, 124 M parameters (768 x 12 layers, 12 heads, 1,024 positions)
    t5-base        T5ForConditionalGeneration, 223 M (768, 12 + 12 layers, 12 heads, ReLU, tied head)
    t5-v1_1-base   the same with gated GELU and a head of its own, 248 M
    vit-base       ViTForImageClassification, 87 M (768 x 12, patches of 16 x 16 of 224 x 224, 1,000 labels)

Shapes and fields are those of the published models, or with --tiny of two narrow layers. Classes are transformers',
so the files have the names and layouts of real ones. Weights are normal, scaled by their number of columns so that
every layer adds as much as it reads, and queries and keys so that scores spread by about 2: attention is far from
uniform, as in trained models and unlike in freshly initialised ones, whose masks and roundings would hardly show.
How far is measured on 64 random tokens and printed: the largest weight of a row on average, beside 1/keys.

Tokenizers are of single bytes (GPT-2) and characters (T5): texts become tokens and back, but mean nothing. Beside
the model lie config.json, generation_config.json and tokenizer.json, or preprocessor_config.json.

    pip install torch transformers tokenizers safetensors
"""
import argparse
import json
import pathlib
import string

import torch
from transformers import (GPT2Config, GPT2LMHeadModel, T5Config, T5ForConditionalGeneration, ViTConfig,
                          ViTForImageClassification)

TINY = {"gpt2": {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 128},
        "t5": {"d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 2, "num_heads": 4, "vocab_size": 256},
        "vit": {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128,
                "image_size": 64}}
T5_BASE = {"d_model": 768, "d_kv": 64, "d_ff": 3072, "num_layers": 12, "num_heads": 12, "decoder_start_token_id": 0,
           "task_specific_params": {
               "summarization": {"prefix": "summarize: ", "max_length": 200},
               "translation_en_to_de": {"prefix": "translate English to German: ", "max_length": 300}}}
SPREAD = 2.0  # of scores, by design


def model_of(name, tiny):
    if name == "gpt2":
        return GPT2LMHeadModel(GPT2Config(**(TINY["gpt2"] if tiny else {}), attn_implementation="eager"))
    if name.startswith("t5"):
        fields = {**T5_BASE, **(TINY["t5"] if tiny else {})}
        if name == "t5-v1_1-base":
            fields.update(feed_forward_proj="gated-gelu", d_ff=128 if tiny else 2048, tie_word_embeddings=False)
        model = T5ForConditionalGeneration(T5Config(**fields, attn_implementation="eager"))
        if name == "t5-v1_1-base":
            model.lm_head.weight = torch.nn.Parameter(torch.empty_like(model.shared.weight))
        return model
    return ViTForImageClassification(ViTConfig(num_labels=1000, **(TINY["vit"] if tiny else {}),
                                               attn_implementation="eager"))


def fill(model, seed):
    """Every tensor by its role, in the order of their names."""
    generator = torch.Generator().manual_seed(seed)
    t5 = isinstance(model, T5ForConditionalGeneration)
    # Scores of two vectors of unit numbers spread by the root of the head size; all but T5 divide by it.
    both = (SPREAD if not t5 else SPREAD / model.config.d_kv ** 0.5) ** 0.5
    for name, value in sorted(model.named_parameters()):
        conv1d = isinstance(model, GPT2LMHeadModel) and value.dim() == 2 and ".h." in name
        columns = value.shape[0] if conv1d else value[0].numel()
        normal = torch.randn(value.shape, generator=generator)
        if value.dim() == 1:
            norm = "norm" in name or ".ln_" in name
            value.data = normal * 0.1 + (1 if norm and name.endswith("weight") else 0)
        elif "relative_attention_bias" in name:
            value.data = normal
        elif "embed" in name or "shared" in name or "wte" in name or "wpe" in name:
            projects = "patch_embeddings" in name
            value.data = normal * (1 if not projects else columns ** -0.5)
        else:
            value.data = normal * columns ** -0.5
            if "c_attn" in name:
                value.data[:, : 2 * value.shape[0]] *= both
            elif any(part in name for part in (".q.", ".k.", "query", "key", "q_proj", "k_proj")):
                value.data *= both


def sharpness(model):
    """Mean largest weight of attention's rows, and what it would be if attention were uniform."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        if isinstance(model, ViTForImageClassification):
            size = model.config.image_size
            out = model(torch.randn(1, 3, size, size, generator=generator), output_attentions=True)
            layers, rows = out.attentions, slice(None)
        else:
            ids = torch.randint(3, 250, (1, 64), generator=generator)
            if isinstance(model, T5ForConditionalGeneration):
                layers = model.encoder(ids, output_attentions=True).attentions
            else:
                layers = model(ids, output_attentions=True).attentions
            rows = slice(-16, None)  # of a causal mask, those that see most
    largest = torch.stack([layer[..., rows, :].max(-1).values.mean() for layer in layers])
    return largest.mean().item(), 1 / layers[0].shape[-1]


def gpt2_tokenizer(vocab_size):
    """Single bytes, spelled as GPT-2 spells them, and the end of a text as the last id."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]  # spelled as they are
    others = [byte for byte in range(256) if byte not in plain]
    vocab = {chr(byte): byte for byte in plain} | {chr(256 + i): byte for i, byte in enumerate(others)}
    unused = {f"<unused {i}>": i for i in range(256, vocab_size - 1)}
    end = {"id": vocab_size - 1, "content": "<|endoftext|>", "special": True, "single_word": False, "lstrip": False,
           "rstrip": False, "normalized": False}
    return {"version": "1.0", "added_tokens": [end],
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
            "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
            "model": {"type": "BPE", "vocab": {**vocab, **unused, end["content"]: end["id"]}, "merges": []}}


def t5_tokenizer():
    """Printable characters as pieces of a unigram model, with the special tokens of T5 in front."""
    special = ["<pad>", "</s>", "<unk>"]
    pieces = [[token, 0.0] for token in special] + [["\u2581", -2.0]] + \
             [[c, -4.0] for c in string.printable if not c.isspace()]
    space = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True}
    return {"version": "1.0",
            "added_tokens": [{"id": i, "content": token, "special": True, "single_word": False, "lstrip": False,
                              "rstrip": False, "normalized": False} for i, token in enumerate(special)],
            "pre_tokenizer": space, "decoder": space,
            "post_processor": {"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A", "type_id": 0}},
                                                                        {"SpecialToken": {"id": "</s>", "type_id": 0}}],
                               "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
                               "special_tokens": {"</s>": {"id": "</s>", "ids": [1], "tokens": ["</s>"]}}},
            "model": {"type": "Unigram", "unk_id": 2, "vocab": pieces, "byte_fallback": False}}


def vit_processor(size):
    return {"image_processor_type": "ViTImageProcessor", "do_resize": True, "size": {"height": size, "width": size},
            "resample": 2, "do_rescale": True, "rescale_factor": 1 / 255, "do_normalize": True,
            "image_mean": [0.5] * 3, "image_std": [0.5] * 3}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=["gpt2", "t5-base", "t5-v1_1-base", "vit-base"])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dtype", choices=["float32", "float16", "bfloat16"], default="float32")
    parser.add_argument("--tiny", action="store_true", help="two narrow layers")
    arguments = parser.parse_args()

    model = model_of(arguments.model, arguments.tiny).eval()
    fill(model, arguments.seed)
    model.tie_weights()
    largest, uniform = sharpness(model)
    assert largest > 3 * uniform, f"attention is close to uniform: {largest:.3f} beside {uniform:.3f}"
    model.to(getattr(torch, arguments.dtype)).save_pretrained(arguments.folder)
    write = lambda name, json_object: (arguments.folder / name).write_text(json.dumps(json_object))
    if arguments.model == "gpt2":
        write("tokenizer.json", gpt2_tokenizer(model.config.vocab_size))
    elif arguments.model == "vit-base":
        write("preprocessor_config.json", vit_processor(model.config.image_size))
    else:
        write("tokenizer.json", t5_tokenizer())
    count = sum(value.numel() for value in model.parameters())
    print(f"{arguments.folder}: {arguments.model}, {count / 1e6:.1f} M parameters in {arguments.dtype}, seed "
          f"{arguments.seed}; attention's largest weight {largest:.3f} on average, {uniform:.4f} if uniform")


if __name__ == "__main__":
    main()
