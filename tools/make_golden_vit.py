#!/usr/bin/env python3
"""Writes tests/data/vit_golden.safetensors, vit_golden.json and small images beside them (vit_*.png, vit_*.jpg): one set
of small seeded weights and the logits that transformers computes from it in float64 under many configurations, each of
which changes a field that changes numbers; and what its image processor (with Pillow) makes of each image under many
settings. Weights are scaled so that attention is far from uniform.

    pip install torch transformers safetensors pillow && tools/make_golden_vit.py
"""
import json
import pathlib

import numpy as np
import torch
from PIL import Image
from safetensors.torch import save_file
from transformers import ViTConfig, ViTForImageClassification
from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

DATA = pathlib.Path(__file__).resolve().parent.parent / "tests" / "data"
BASE = {"model_type": "vit", "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 40,
        "image_size": 12, "patch_size": 4, "num_channels": 3, "hidden_act": "gelu", "layer_norm_eps": 1e-12,
        "qkv_bias": True, "id2label": {"0": "cat", "1": "dog", "2": "hash table", "3": "tree"}}
SQUARE = {"size": {"height": 12, "width": 12}}
# name: fields of config.json that differ, size of the processor
CASES = {
    "base": ({}, SQUARE),
    "patch_size": ({"patch_size": 6}, SQUARE),
    "sides": ({"image_size": [8, 12], "patch_size": [4, 2]}, {"size": {"height": 8, "width": 12}}),
    "hidden_act": ({"hidden_act": "gelu_new"}, SQUARE),
    "relu": ({"hidden_act": "relu"}, SQUARE),
    "layer_norm_eps": ({"layer_norm_eps": 0.05}, SQUARE),
    "qkv_bias": ({"qkv_bias": False}, SQUARE),
    "heads": ({"num_attention_heads": 6}, SQUARE),
    "layers": ({"num_hidden_layers": 1}, SQUARE),
    "intermediate_size": ({"intermediate_size": 32}, SQUARE),
    "labels": ({"id2label": {"0": "cat", "1": "dog"}}, SQUARE),
}
# name: (image, fields of preprocessor_config.json)
PROCESSORS = {
    "shrunk": ("vit_rgb.png", SQUARE),
    "bicubic": ("vit_rgb.png", {**SQUARE, "resample": 3}),
    "one number": ("vit_rgb.png", {"size": 20}),
    "grey, grown": ("vit_grey.png", {"size": {"height": 31, "width": 16}}),
    "grown by bicubic": ("vit_grey.png", {"size": {"height": 31, "width": 16}, "resample": 3}),
    "alpha": ("vit_alpha.png", {"size": {"height": 9, "width": 12}}),
    "palette": ("vit_palette.png", SQUARE),
    "one side kept": ("vit_rgb.png", {"size": {"height": 29, "width": 12}}),
    "not resized": ("vit_alpha.png", {"do_resize": False}),
    "mean and deviation": ("vit_rgb.png", {**SQUARE, "image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}),
    "rescale_factor": ("vit_rgb.png", {**SQUARE, "rescale_factor": 0.0078125}),
    "not rescaled": ("vit_rgb.png", {**SQUARE, "do_rescale": False}),
    "not normalised": ("vit_rgb.png", {**SQUARE, "do_normalize": False}),
    "jpeg": ("vit_photo.jpg", SQUARE),
}
NAMES = [("vit.layers.", "vit.encoder.layer."), ("attention.q_proj", "attention.attention.query"),
         ("attention.k_proj", "attention.attention.key"), ("attention.v_proj", "attention.attention.value"),
         ("attention.o_proj", "attention.output.dense"), ("mlp.fc1", "intermediate.dense"), ("mlp.fc2", "output.dense")]


def file_name(name):
    """As save_pretrained() writes it."""
    for here, there in NAMES:
        name = name.replace(here, there)
    return name


def full_weights():
    generator = torch.Generator().manual_seed(12)
    weights = {}

    def normal(name, *shape, scale, shift=0.0):
        weights[name] = (torch.randn(*shape, generator=generator) * scale + shift).to(torch.float32)

    normal("vit.embeddings.cls_token", 1, 1, 24, scale=0.7)
    normal("vit.embeddings.position_embeddings", 1, 13, 24, scale=0.5)
    normal("vit.embeddings.patch_embeddings.projection.weight", 24, 3, 6, 6, scale=0.3)
    normal("vit.embeddings.patch_embeddings.projection.bias", 24, scale=0.3)
    for i in range(2):
        layer = f"vit.encoder.layer.{i}."
        for part, rows, columns in (("attention.attention.query", 24, 24), ("attention.attention.key", 24, 24),
                                    ("attention.attention.value", 24, 24), ("attention.output.dense", 24, 24),
                                    ("intermediate.dense", 40, 24), ("output.dense", 24, 40)):
            normal(f"{layer}{part}.weight", rows, columns, scale=0.35)
            normal(f"{layer}{part}.bias", rows, scale=0.3)
        for part in ("layernorm_before", "layernorm_after"):
            normal(f"{layer}{part}.weight", 24, scale=0.2, shift=1.0)
            normal(f"{layer}{part}.bias", 24, scale=0.2)
    normal("vit.layernorm.weight", 24, scale=0.2, shift=1.0)
    normal("vit.layernorm.bias", 24, scale=0.2)
    normal("classifier.weight", 4, 24, scale=0.3)
    normal("classifier.bias", 4, scale=0.3)
    return weights


def write_images():
    """Waves, so that a filter off by a pixel shows."""
    y, x = np.mgrid[0:29, 0:37]
    rgb = np.stack([127 + 120 * np.sin(x / 2.1 + y / 5), 127 + 120 * np.cos(y / 1.7), (x * 7 + y * 3) % 256], -1)
    rgb = Image.fromarray(rgb.astype(np.uint8), "RGB")
    rgb.save(DATA / "vit_rgb.png")
    rgb.crop((0, 0, 10, 9)).convert("L").save(DATA / "vit_grey.png")
    alpha = rgb.crop((3, 3, 15, 12)).convert("RGBA")
    alpha.putalpha(Image.fromarray((np.mgrid[0:9, 0:12][1] * 20).astype(np.uint8), "L"))
    alpha.save(DATA / "vit_alpha.png")
    rgb.quantize(16).save(DATA / "vit_palette.png")
    smooth = rgb.resize((9, 7)).resize((36, 28), Image.Resampling.BICUBIC)
    smooth.save(DATA / "vit_photo.jpg", quality=95, subsampling=0)
    exif = Image.Exif()
    exif[0x0112] = 6
    smooth.save(DATA / "vit_turned.jpg", quality=50, exif=exif)


def processed(fields, image):
    processor = ViTImageProcessorPil(**{k: v for k, v in fields.items()})
    return processor(Image.open(DATA / image).convert("RGB"), return_tensors="pt")["pixel_values"].float()


def main():
    write_images()
    weights = full_weights()
    tensors = {f"weight.{k}": v for k, v in weights.items()}
    golden = {"cases": [], "processors": []}
    seen = {}
    for name, (changes, size) in CASES.items():
        fields = {**BASE, **changes}
        settings = {k: v for k, v in fields.items() if k not in ("model_type", "id2label")}
        model = ViTForImageClassification(ViTConfig(**settings, num_labels=len(fields["id2label"]),
                                                    attn_implementation="eager")).double().eval()
        state = {key: weights[file_name(key)][tuple(slice(0, n) for n in value.shape)].double()
                 for key, value in model.state_dict().items()}
        model.load_state_dict(state)
        with torch.no_grad():
            logits = model(processed(size, "vit_rgb.png").double()).logits[0].float().contiguous()
        assert seen.setdefault(tuple(logits.tolist()), name) == name, f"{name}: nothing is put to the test"
        tensors[f"logits.{name}"] = logits
        golden["cases"].append({"name": name, "config": fields, "processor": size,
                                "tensors": {file_name(k): list(v.shape) for k, v in state.items()}})
    for name, (image, fields) in PROCESSORS.items():
        tensors[f"pixels.{name}"] = processed(fields, image)[0].contiguous()
        golden["processors"].append({"name": name, "image": image, "fields": fields})
    save_file(tensors, DATA / "vit_golden.safetensors")
    (DATA / "vit_golden.json").write_text(json.dumps(golden, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
