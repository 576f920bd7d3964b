#!/usr/bin/env python3
"""Writes tests/data/encoders_golden.safetensors and encoders_golden.json: one set of small seeded weights, and what
transformers computes from it in float64 with BERT, RoBERTa, DistilBERT and ModernBERT under many configurations, each of
which changes a field that changes numbers: the last hidden states of a text, and the masked-LM head's logits where the text
has a mask token. Weights are scaled so that attention is far from uniform.

    pip install torch transformers safetensors && tools/make_golden_encoders.py
"""
import json
import pathlib
import tempfile

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import (BertConfig, BertForMaskedLM, BertTokenizer, DistilBertConfig, DistilBertForMaskedLM,
                          ModernBertConfig, ModernBertForMaskedLM, PreTrainedTokenizerFast, RobertaConfig,
                          RobertaForMaskedLM, RobertaTokenizer)

DATA = pathlib.Path(__file__).resolve().parent.parent / "tests" / "data"
VOCAB = 40
CLASSES = {"bert": (BertConfig, BertForMaskedLM), "roberta": (RobertaConfig, RobertaForMaskedLM),
           "distilbert": (DistilBertConfig, DistilBertForMaskedLM),
           "modernbert": (ModernBertConfig, ModernBertForMaskedLM)}
BERT = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 40, "vocab_size": VOCAB,
        "max_position_embeddings": 32, "type_vocab_size": 2, "layer_norm_eps": 1e-12, "hidden_act": "gelu"}
BASE = {
    "bert": {"model_type": "bert", **BERT},
    "roberta": {"model_type": "roberta", **BERT, "type_vocab_size": 1, "layer_norm_eps": 1e-5, "pad_token_id": 1},
    "distilbert": {"model_type": "distilbert", "dim": 24, "n_layers": 2, "n_heads": 3, "hidden_dim": 40,
                   "vocab_size": VOCAB, "max_position_embeddings": 32, "activation": "gelu"},
    "modernbert": {"model_type": "modernbert", "hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 3,
                   "intermediate_size": 16, "vocab_size": VOCAB, "max_position_embeddings": 32, "local_attention": 6,
                   "global_attn_every_n_layers": 3, "global_rope_theta": 1000.0, "local_rope_theta": 20.0,
                   "hidden_activation": "gelu", "norm_eps": 1e-5, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
                   "cls_token_id": 1, "sep_token_id": 2},
}
GLOBAL, LOCAL = "full_attention", "sliding_attention"
# name: its family's fields that differ (None: left out)
CASES = {
    "bert": {},
    "bert relu": {"hidden_act": "relu"},
    "bert untied": {"tie_word_embeddings": False},
    "bert eps": {"layer_norm_eps": 0.05},
    "roberta": {},
    "roberta pad_token_id": {"pad_token_id": 5},
    "roberta pad_token_id by default": {"pad_token_id": None, "max_position_embeddings": 30, "layer_norm_eps": 0.01},
    "roberta layer_norm_eps": {"layer_norm_eps": 0.05},
    "roberta layer_norm_eps by default": {"layer_norm_eps": None},
    "roberta hidden_act": {"hidden_act": "gelu_new"},
    "roberta relu": {"hidden_act": "relu"},
    "roberta heads": {"num_attention_heads": 6},
    "roberta layers": {"num_hidden_layers": 1},
    "roberta intermediate_size": {"intermediate_size": 32},
    "roberta type_vocab_size": {"type_vocab_size": 2, "layer_norm_eps": 0.1},
    "roberta untied": {"tie_word_embeddings": False, "layer_norm_eps": 2e-5},
    "distilbert": {},
    "distilbert activation": {"activation": "relu"},
    "distilbert n_heads": {"n_heads": 1},
    "distilbert n_layers": {"n_layers": 1},
    "distilbert hidden_dim": {"hidden_dim": 32},
    "distilbert untied": {"tie_word_embeddings": False, "activation": "relu", "n_heads": 2},
    "modernbert": {},
    "modernbert local_attention": {"local_attention": 4},
    "modernbert odd local_attention": {"local_attention": 11},
    "modernbert no local_attention": {"local_attention": None},
    "modernbert every layer": {"global_attn_every_n_layers": 1},
    "modernbert every second layer": {"global_attn_every_n_layers": 2},
    "modernbert every third by default": {"global_attn_every_n_layers": None, "norm_eps": 1e-4},
    "modernbert layer_types": {"global_attn_every_n_layers": None, "layer_types": [LOCAL, GLOBAL, LOCAL]},
    "modernbert local alone": {"global_attn_every_n_layers": None, "layer_types": [LOCAL, LOCAL, LOCAL]},
    "modernbert global_rope_theta": {"global_rope_theta": 50.0},
    "modernbert local_rope_theta": {"local_rope_theta": 200.0},
    "modernbert thetas by default": {"global_rope_theta": None, "local_rope_theta": None},
    "modernbert rope_parameters": {"global_rope_theta": None, "local_rope_theta": None, "rope_parameters": {
        GLOBAL: {"rope_type": "default", "rope_theta": 300.0}, LOCAL: {"rope_type": "default", "rope_theta": 30.0}}},
    "modernbert norm_eps": {"norm_eps": 0.05},
    "modernbert norm_eps by default": {"norm_eps": None, "local_attention": 2},
    "modernbert norm_bias": {"norm_bias": True},
    "modernbert attention_bias": {"attention_bias": True},
    "modernbert mlp_bias": {"mlp_bias": True},
    "modernbert hidden_activation": {"hidden_activation": "gelu_pytorch_tanh"},
    "modernbert relu": {"hidden_activation": "relu"},
    "modernbert heads": {"num_attention_heads": 6},
    "modernbert one layer": {"num_hidden_layers": 1},
    "modernbert intermediate_size": {"intermediate_size": 8},
    "modernbert head classifier_bias": {"classifier_bias": True},
    "modernbert head classifier_activation": {"classifier_activation": "relu"},
    "modernbert head without decoder_bias": {"decoder_bias": False},
    "modernbert head untied": {"tie_word_embeddings": False},
}
# DistilBERT's names of what the others call so.
DISTILBERT = [("distilbert.transformer.layer.", "encoder.layer."), ("attention.q_lin", "attention.self.query"),
              ("attention.k_lin", "attention.self.key"), ("attention.v_lin", "attention.self.value"),
              ("attention.out_lin", "attention.output.dense"), ("sa_layer_norm", "attention.output.LayerNorm"),
              ("ffn.lin1", "intermediate.dense"), ("ffn.lin2", "output.dense"), ("output_layer_norm", "output.LayerNorm"),
              ("vocab_transform", "head.dense"), ("vocab_layer_norm", "head.norm"), ("vocab_projector", "head.decoder")]
HEADS = [("cls.predictions.transform.dense", "head.dense"), ("cls.predictions.transform.LayerNorm", "head.norm"),
         ("cls.predictions.decoder", "head.decoder"), ("cls.predictions.bias", "head.decoder.bias"),
         ("lm_head.dense", "head.dense"), ("lm_head.layer_norm", "head.norm"), ("lm_head.decoder", "head.decoder"),
         ("lm_head.bias", "head.decoder.bias")]


WORDS = "embeddings.word_embeddings.weight"


def role_of(name):
    """The name in full_weights() of a family's tensor."""
    if name.startswith("model."):
        return "modern." + name.removeprefix("model.") if "tok_embeddings" not in name else WORDS
    if name.startswith(("head.", "decoder.")):
        return name if name.startswith("head.") else "head." + name
    for theirs, role in DISTILBERT + HEADS if name.startswith(("distilbert.", "vocab")) else HEADS:
        name = name.replace(theirs, role)
    return name.removeprefix("bert.").removeprefix("roberta.").removeprefix("distilbert.")


def full_weights():
    """By role; a case takes the leading rows and columns it needs."""
    generator = torch.Generator().manual_seed(9)
    weights = {}

    def normal(name, *shape, scale, shift=0.0):
        weights[name] = (torch.randn(*shape, generator=generator) * scale + shift).to(torch.float32)

    def dense(name, rows, columns):
        normal(f"{name}.weight", rows, columns, scale=0.35)
        normal(f"{name}.bias", rows, scale=0.3)

    def norm(name):
        normal(f"{name}.weight", 24, scale=0.2, shift=1.0)
        normal(f"{name}.bias", 24, scale=0.2)

    for table, rows in (("word", VOCAB), ("position", 32), ("token_type", 2)):
        normal(f"embeddings.{table}_embeddings.weight", rows, 24, scale=0.6)
    norm("embeddings.LayerNorm")
    for i in range(2):
        for part in ("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"):
            dense(f"encoder.layer.{i}.{part}", 24, 24)
        dense(f"encoder.layer.{i}.intermediate.dense", 40, 24)
        dense(f"encoder.layer.{i}.output.dense", 24, 40)
        norm(f"encoder.layer.{i}.attention.output.LayerNorm")
        norm(f"encoder.layer.{i}.output.LayerNorm")
    dense("head.dense", 24, 24)
    norm("head.norm")
    dense("head.decoder", VOCAB, 24)
    for name in ("modern.embeddings.norm", "modern.final_norm"):
        norm(name)
    for i in range(3):
        name = f"modern.layers.{i}."
        for part in ("attn_norm", "mlp_norm") if i > 0 else ("mlp_norm",):
            norm(name + part)
        for part, rows, columns in (("attn.Wqkv", 72, 24), ("attn.Wo", 24, 24), ("mlp.Wi", 32, 24), ("mlp.Wo", 24, 16)):
            dense(name + part, rows, columns)
    return weights


def tokenizers():
    """Small vocabularies of letters; the files that transformers saves, and each tokenizer's view of a text."""
    letters = [chr(ord("a") + i) for i in range(26)]
    wordpiece = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + letters[:20] + ["##" + c for c in letters[:15]]
    merges = [("\u0120", "a"), ("b", "c"), ("\u0120a", "bc"), ("\u0120", "d"), ("e", "e")]
    bpe = ["<s>", "<pad>", "</s>", "<unk>"] + letters + ["\u0120"] + [a + b for a, b in merges] + ["!", "\u00c3", "\u00a4"]
    bpe.append("<mask>")
    assert len(wordpiece) == VOCAB and len(bpe) == VOCAB
    modern = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(
        ["[PAD]", "[CLS]", "[SEP]", "[UNK]"] + bpe[4:-1] + ["[MASK]"])}, merges=merges))
    modern.normalizer = normalizers.NFC()
    modern.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    modern.decoder = decoders.ByteLevel()
    modern.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]",
                                                          special_tokens=[("[CLS]", 1), ("[SEP]", 2)])
    return {
        "modernbert": PreTrainedTokenizerFast(tokenizer_object=modern, pad_token="[PAD]", cls_token="[CLS]",
                                              sep_token="[SEP]", unk_token="[UNK]", mask_token="[MASK]"),
        "bert": BertTokenizer(vocab={token: i for i, token in enumerate(wordpiece)}),
        "roberta": RobertaTokenizer(vocab={token: i for i, token in enumerate(bpe)}, merges=merges),
    }


TEXTS = {"bert": "ab a [MASK] bad cafe [PAD] e, deed [MASK]",
         "modernbert": "abc abc [MASK] abcd ee!\u00e4 d deee dada zebra [MASK]",
         "roberta": "abc abc <mask> abcd ee! <pad>\u00e4 d deee dada <mask>"}


def files_of(tokenizer):
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save_pretrained(folder)
        return {path.name: json.loads(path.read_text()) for path in sorted(pathlib.Path(folder).glob("*.json"))}


def main():
    weights = full_weights()
    golden = {"tokenizers": {}, "tensors": {}, "cases": []}
    results = {}
    ids_of, mask_of = {}, {}
    for family, tokenizer in tokenizers().items():
        ids_of[family] = tokenizer(TEXTS[family])["input_ids"]
        mask_of[family] = tokenizer.mask_token_id
        golden["tokenizers"][family] = {"files": files_of(tokenizer), "text": TEXTS[family], "ids": ids_of[family]}
    for name, changes in CASES.items():
        family = name.split()[0]
        fields = {k: v for k, v in {**BASE[family], **changes}.items() if v is not None}
        config_class, model_class = CLASSES[family]
        settings = {k: v for k, v in fields.items() if k != "model_type"}
        model = model_class(config_class(**settings, attn_implementation="eager")).double().eval()
        state = {key: weights[role_of(key)][tuple(slice(0, n) for n in value.shape)].double()
                 for key, value in model.state_dict().items()}
        tied = fields.get("tie_word_embeddings", True)
        for key in state:
            if tied and role_of(key) == "head.decoder.weight":
                state[key] = weights[WORDS].double()
        model.load_state_dict(state)
        tokens = "bert" if family == "distilbert" else family
        ids = torch.tensor([ids_of[tokens]])
        with torch.no_grad():
            # No attention mask: padding tokens that stand in a text are read as any other.
            out = model(ids, attention_mask=torch.ones_like(ids), output_hidden_states=True)
        masked = ids[0] == mask_of[tokens]
        results[f"states.{name}"] = out.hidden_states[-1][0].float().contiguous()
        results[f"logits.{name}"] = out.logits[0][masked].float().contiguous()
        # The family's tensors at their largest; a case says where it has smaller ones, and which it lacks.
        shapes = {key: list(value.shape) for key, value in state.items()
                  if not (tied and role_of(key) == "head.decoder.weight")}
        table = golden["tensors"].setdefault(family, {})
        for key in state:
            table.setdefault(key, role_of(key))
        golden["cases"].append({
            "name": name, "config": fields, "tokenizer": tokens, "absent": [key for key in table if key not in shapes],
            "shapes": {key: shape for key, shape in shapes.items() if shape != list(weights[role_of(key)].shape)}})
    for kind in ("states", "logits"):
        seen = {}
        for name in CASES:
            key = tuple(results[f"{kind}.{name}"].flatten().tolist())
            head_alone = kind == "states" and ("untied" in name or "head" in name.split())
            if not head_alone:
                assert seen.setdefault(key, name) == name, f"{name} gives {kind} of {seen[key]}: nothing is put to the test"
    save_file({**{f"weight.{k}": v for k, v in weights.items()}, **results}, DATA / "encoders_golden.safetensors")
    (DATA / "encoders_golden.json").write_text(json.dumps(golden, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
