#!/usr/bin/env python3
"""Writes a GGUF file of the LLaMA family or of Gemma 3 as a Hugging Face folder in float32 (config.json,
model.safetensors, tokenizer.json or, of SentencePiece's vocabularies, tokenizer.model), so that transformers
can run the very numbers that stof dequantises. Shares nothing with stof's own reader.

    pip install numpy safetensors tokenizers sentencepiece protobuf && tools/gguf_to_hf.py FILE.gguf FOLDER
"""
import json
import pathlib
import struct
import sys

import numpy as np
from safetensors.numpy import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

import make_golden_gguf

FORMATS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
CONTROL, USER_DEFINED = 3, 4
NAMES = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
LAYER_NAMES = {"attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
               "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
               "ffn_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
               "ffn_down": "mlp.down_proj"}
GEMMA_NAMES = {**LAYER_NAMES, "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm",
               "post_attention_norm": "post_attention_layernorm", "ffn_norm": "pre_feedforward_layernorm",
               "post_ffw_norm": "post_feedforward_layernorm"}


class Gguf:
    """metadata: {key: value}; tensors: {name: (shape, type number, offset)}"""

    def __init__(self, path):
        self.data, self.at = np.fromfile(path, dtype=np.uint8), 4
        self.raw = memoryview(self.data)
        self.number("I")
        num_tensors, num_values = self.number("Q"), self.number("Q")
        self.metadata, self.tensors = {}, {}
        for _ in range(num_values):
            key = self.text()
            self.metadata[key] = self.value(self.number("I"))
        for _ in range(num_tensors):
            name = self.text()
            shape = [self.number("Q") for _ in range(self.number("I"))][::-1]
            self.tensors[name] = (shape, self.number("I"), self.number("Q"))
        alignment = self.metadata.get("general.alignment", 32)
        self.start = -(-self.at // alignment) * alignment

    def number(self, kind):
        (value,) = struct.unpack_from("<" + kind, self.raw, self.at)
        self.at += struct.calcsize("<" + kind)
        return value

    def text(self):
        size = self.number("Q")
        self.at += size
        return bytes(self.raw[self.at - size:self.at]).decode()

    def value(self, kind):
        if kind == 8:
            return self.text()
        if kind == 9:
            element, count = self.number("I"), self.number("Q")
            return [self.value(element) for _ in range(count)]
        return self.number(FORMATS[kind])

    def array(self, name):
        shape, number, offset = self.tensors[name]
        count, begin = int(np.prod(shape)), self.start + offset
        if number == 0:
            return self.data[begin:begin + 4 * count].view("<f4").reshape(shape).copy()
        if number == 1:
            return self.data[begin:begin + 2 * count].view("<f2").reshape(shape).astype(np.float32)
        for kind, elements, size, _, function in make_golden_gguf.QUANTISED.values():
            if kind == number:
                blocks = self.data[begin:begin + count // elements * size].reshape(-1, size)
                return function(blocks).reshape(shape).astype(np.float32)
        raise SystemExit(f"{name}: type number {number} is not known")


def hf_name(name, layer_names=LAYER_NAMES):
    stem, suffix = name.rsplit(".", 1)
    if stem.startswith("blk."):
        _, layer, part = stem.split(".")
        return f"model.layers.{layer}.{layer_names[part]}.{suffix}"
    return f"{NAMES[stem]}.{suffix}"


def rotated_rows(weight, heads):
    """llama.cpp stores the two halves of each head's rows interleaved."""
    return weight.reshape(heads, -1, 2, *weight.shape[1:]).swapaxes(1, 2).reshape(weight.shape)


def config_of(m):
    heads, width = m["llama.attention.head_count"], m["llama.embedding_length"]
    return {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
            "hidden_size": width, "num_hidden_layers": m["llama.block_count"], "num_attention_heads": heads,
            "num_key_value_heads": m["llama.attention.head_count_kv"], "head_dim": width // heads,
            "intermediate_size": m["llama.feed_forward_length"], "max_position_embeddings": m["llama.context_length"],
            "rms_norm_eps": m["llama.attention.layer_norm_rms_epsilon"],
            "rope_parameters": {"rope_type": "default", "rope_theta": m["llama.rope.freq_base"]},
            "vocab_size": len(m["tokenizer.ggml.tokens"]), "bos_token_id": m["tokenizer.ggml.bos_token_id"],
            "eos_token_id": m["tokenizer.ggml.eos_token_id"], "attention_bias": False, "mlp_bias": False,
            "torch_dtype": "float32"}


def gemma_config_of(m):
    return {"architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text",
            "hidden_activation": "gelu_pytorch_tanh", "hidden_size": m["gemma3.embedding_length"],
            "num_hidden_layers": m["gemma3.block_count"], "num_attention_heads": m["gemma3.attention.head_count"],
            "num_key_value_heads": m["gemma3.attention.head_count_kv"], "head_dim": m["gemma3.attention.key_length"],
            "query_pre_attn_scalar": m["gemma3.attention.key_length"],
            "intermediate_size": m["gemma3.feed_forward_length"], "max_position_embeddings": m["gemma3.context_length"],
            "rms_norm_eps": m["gemma3.attention.layer_norm_rms_epsilon"], "sliding_window_pattern": 6,
            "sliding_window": m["gemma3.attention.sliding_window"], "rope_theta": m["gemma3.rope.freq_base"],
            "rope_local_base_freq": 10000.0, "vocab_size": len(m["tokenizer.ggml.tokens"]),
            "bos_token_id": m["tokenizer.ggml.bos_token_id"], "eos_token_id": m["tokenizer.ggml.eos_token_id"],
            "torch_dtype": "float32"}


def sentencepiece_of(metadata):
    """The vocabulary in SentencePiece's own format, and tokenizer_config.json beside it."""
    from sentencepiece import sentencepiece_model_pb2 as spm_pb2
    tokens, types = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"]
    unknown = metadata["tokenizer.ggml.unknown_token_id"]
    proto = spm_pb2.ModelProto()
    for i, (token, score) in enumerate(zip(tokens, metadata["tokenizer.ggml.scores"])):
        proto.pieces.add(piece=token, score=score, type=2 if i == unknown else types[i])
    proto.trainer_spec.model_type = 2
    proto.trainer_spec.byte_fallback = 6 in types
    proto.normalizer_spec.add_dummy_prefix = metadata.get("tokenizer.ggml.add_space_prefix", True)
    proto.normalizer_spec.remove_extra_whitespaces = False
    config = {"add_bos_token": metadata.get("tokenizer.ggml.add_bos_token", True),
              "add_eos_token": metadata.get("tokenizer.ggml.add_eos_token", False),
              "bos_token": tokens[metadata["tokenizer.ggml.bos_token_id"]],
              "eos_token": tokens[metadata["tokenizer.ggml.eos_token_id"]]}
    return proto, config


def tokenizer_of(metadata, pre_tokenizer=None):
    """SmolLM's own splitting unless told otherwise."""
    tokens, types = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"]
    merges = [tuple(merge.split(" ")) for merge in metadata["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizer or pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(t, normalized=False) for t, k in zip(tokens, types) if k == CONTROL])
    tokenizer.add_tokens([AddedToken(t, normalized=False) for t, k in zip(tokens, types) if k == USER_DEFINED])
    return tokenizer


def main():
    gguf, folder = Gguf(sys.argv[1]), pathlib.Path(sys.argv[2])
    gemma = gguf.metadata["general.architecture"] == "gemma3"
    config = gemma_config_of(gguf.metadata) if gemma else config_of(gguf.metadata)
    heads = {} if gemma else {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    weights = {}
    for name in gguf.tensors:
        values = gguf.array(name)
        part = name.split(".")[-2]
        if gemma and part.endswith("norm"):
            values = values - 1  # what transformers adds 1 to
        weights[hf_name(name, GEMMA_NAMES if gemma else LAYER_NAMES)] = \
            rotated_rows(values, heads[part]) if part in heads else values
    config["tie_word_embeddings"] = "lm_head.weight" not in weights
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    save_file({k: np.ascontiguousarray(v) for k, v in weights.items()}, folder / "model.safetensors", {"format": "pt"})
    if gguf.metadata["tokenizer.ggml.model"] == "llama":
        proto, settings = sentencepiece_of(gguf.metadata)
        (folder / "tokenizer.model").write_bytes(proto.SerializeToString())
        (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=1) + "\n")
    else:
        tokenizer_of(gguf.metadata).save(str(folder / "tokenizer.json"))


if __name__ == "__main__":
    main()
