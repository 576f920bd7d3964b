"""Seeded checkpoints of every family of models, and how far stof and transformers in a narrow type are
from transformers in float32.

    families.py [--device cpu|cuda] [FAMILY ...]

prints a line for each family and type: both errors (of the whole output, relative to its size) and their
ratio. Ends with 1 where a ratio is above 1.5, or above 1e-4 in float32, which the CPU computes in.

Weights are normal, scaled so that every layer adds as much as it reads and scores spread by about 2, and
rounded to numbers that bfloat16 and float16 both hold: only what is computed is rounded. Transformers
runs its own choice of attention, on the same device.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import tempfile
from pathlib import Path
from typing import Any, Callable

import numpy as np
import torch
import transformers
from transformers import (
    BertConfig,
    BertForMaskedLM,
    DistilBertConfig,
    DistilBertForMaskedLM,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    ModernBertConfig,
    ModernBertForMaskedLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    RobertaConfig,
    RobertaForMaskedLM,
    T5Config,
    T5ForConditionalGeneration,
    ViTConfig,
    ViTForImageClassification,
)

import stof

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
import checkpoints  # noqa: E402

transformers.logging.set_verbosity_error()
if hasattr(transformers.logging, "disable_progress_bar"):
    transformers.logging.disable_progress_bar()

#: Of stof's error to transformers' own.
LARGEST_RATIO = 1.5
#: Of float32, relative to the output's size.
FLOAT32 = 1e-4
SPREAD = 2.0  # of scores, by design
TOKENS = 200

_WIDE = dict(hidden_size=256, num_hidden_layers=4, num_attention_heads=4, intermediate_size=512)
_ENCODER = dict(**_WIDE, vocab_size=40, max_position_embeddings=514)
_DECODER = dict(
    **_WIDE, vocab_size=512, max_position_embeddings=512, num_key_value_heads=2, head_dim=64,
    bos_token_id=None, eos_token_id=49, pad_token_id=None, tie_word_embeddings=True,
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Family:
    kind: Any
    config: Callable[[], Any]
    #: (stof's model, transformers' by type and device) -> {output: (stof's, transformers')}
    compare: Callable[..., dict[str, tuple[np.ndarray, Callable[[Any], np.ndarray]]]]
    #: A tokenizer of encoders_golden.json; others are written by write_tokenizer().
    tokenizer: str = ""
    gpu: bool = True


def _numbers(tensor: Any) -> np.ndarray:
    return np.asarray(tensor.detach().double().cpu())


def _log(probabilities: Any) -> np.ndarray:
    return np.log(np.asarray(probabilities, "f8"))


def _encoder(model: Any) -> dict[str, Any]:
    """Last states of every token, and log-probabilities of what may stand at mask tokens."""
    name = "<mask>" if "<mask>" in "".join(model.tokenize("<mask>").tokens) else "[MASK]"
    text = f"ab a bad cafe deed {name} fade " * 40
    ids = model.tokenize(text, max_tokens=TOKENS).ids
    places = [i for i, token in enumerate(model.tokenize(text, max_tokens=TOKENS).tokens) if name in token]
    filled = []
    for place in model.fill_mask(text, count=40, max_tokens=TOKENS):
        row = np.zeros(40)
        row[[c.id for c in place.candidates]] = [c.probability for c in place.candidates]
        filled.append(row)

    def own(of: Any) -> tuple[np.ndarray, np.ndarray]:
        out = of(torch.tensor([ids], device=of.device), output_hidden_states=True)
        states = of.base_model(torch.tensor([ids], device=of.device)).last_hidden_state
        logits = out.logits[0, places].double().log_softmax(-1)
        return _numbers(states[0]), _numbers(logits)

    return {
        "states": (model.encode_tokens(text, max_tokens=TOKENS), lambda of: own(of)[0]),
        "logits": (_log(filled), lambda of: own(of)[1]),
    }


def _ids(vocabulary: int, count: int, seed: int = 1) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return [int(i) for i in torch.randint(3, vocabulary, (count,), generator=generator)]


def _decoder(model: Any) -> dict[str, Any]:
    """In chunks, so that most tokens read keys of the cache."""
    ids = _ids(model.vocab_size, TOKENS)
    return {
        "logits": (
            model.logits(ids, prefill_chunk=64),
            lambda of: _numbers(of(torch.tensor([ids], device=of.device)).logits[0]),
        )
    }


def _t5(model: Any) -> dict[str, Any]:
    source, written = [*_ids(model.vocab_size, TOKENS), 1], _ids(model.vocab_size, 40, seed=2)

    def logits(of: Any) -> np.ndarray:
        out = of(
            input_ids=torch.tensor([source], device=of.device),
            decoder_input_ids=torch.tensor([[0, *written]], device=of.device),
        )
        return _numbers(out.logits[0])

    def states(of: Any) -> np.ndarray:
        return _numbers(of.encoder(torch.tensor([source], device=of.device)).last_hidden_state[0])

    return {
        "states": (model.encode(source), states),
        "logits": (model.logits(source, written), logits),
    }


def _vit(model: Any) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(1)
    pixels = torch.randn(2, 3, 64, 64, generator=generator)
    probabilities = np.zeros((2, 20))
    for row, labels in zip(probabilities, model.classify(pixels.numpy(), count=20)):
        row[[label.id for label in labels]] = [label.probability for label in labels]
    return {
        "logits": (
            _log(probabilities),
            lambda of: _numbers(of(pixels.to(of.device, of.dtype)).logits.double().log_softmax(-1)),
        )
    }


FAMILIES = {
    "bert": Family(BertForMaskedLM, lambda: BertConfig(**_ENCODER), _encoder, "bert"),
    "roberta": Family(
        RobertaForMaskedLM,
        lambda: RobertaConfig(**_ENCODER, type_vocab_size=1, pad_token_id=1, layer_norm_eps=1e-5),
        _encoder, "roberta",
    ),
    "distilbert": Family(
        DistilBertForMaskedLM,
        lambda: DistilBertConfig(
            dim=256, n_layers=4, n_heads=4, hidden_dim=512, vocab_size=40, max_position_embeddings=514
        ),
        _encoder, "bert",
    ),
    "modernbert": Family(
        ModernBertForMaskedLM,
        lambda: ModernBertConfig(
            **_ENCODER, local_attention=32, global_attn_every_n_layers=3, pad_token_id=0,
            bos_token_id=1, eos_token_id=2, cls_token_id=1, sep_token_id=2,
        ),
        _encoder, "modernbert",
    ),
    "gpt2": Family(
        GPT2LMHeadModel,
        lambda: GPT2Config(
            vocab_size=512, n_embd=256, n_layer=4, n_head=4, n_positions=512,
            bos_token_id=None, eos_token_id=49,
        ),
        _decoder,
    ),
    "llama": Family(LlamaForCausalLM, lambda: LlamaConfig(**_DECODER), _decoder),
    "mistral": Family(
        MistralForCausalLM, lambda: MistralConfig(**_DECODER, sliding_window=48), _decoder
    ),
    "qwen2": Family(
        Qwen2ForCausalLM,
        lambda: Qwen2Config(
            **_DECODER, use_sliding_window=True, sliding_window=48, max_window_layers=2
        ),
        _decoder,
    ),
    "gemma3": Family(
        Gemma3ForCausalLM,
        lambda: Gemma3TextConfig(
            **{**_DECODER, "head_dim": 256}, sliding_window=48, query_pre_attn_scalar=200,
            layer_types=["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"],
        ),
        _decoder,
    ),
    "t5": Family(
        T5ForConditionalGeneration,
        lambda: T5Config(
            vocab_size=512, d_model=256, d_kv=64, d_ff=512, num_layers=3, num_heads=4,
            decoder_start_token_id=0,
        ),
        _t5,
    ),
    "t5 gated": Family(
        T5ForConditionalGeneration,
        lambda: T5Config(
            vocab_size=512, d_model=256, d_kv=64, d_ff=512, num_layers=3, num_heads=4,
            decoder_start_token_id=0, feed_forward_proj="gated-gelu", tie_word_embeddings=False,
        ),
        _t5,
    ),
    "vit": Family(
        ViTForImageClassification,
        lambda: ViTConfig(**_WIDE, image_size=64, num_labels=20),
        _vit,
        gpu=False,  # image classifiers compute on the CPU
    ),
}  # fmt: skip


def fill(model: Any, seed: int = 0) -> None:
    """Every tensor by its role, in the order of their names."""
    generator = torch.Generator().manual_seed(seed)
    kind = type(model).__name__
    spread = SPREAD / 64**0.5 if kind.startswith("T5") else SPREAD  # T5 does not divide scores
    for name, value in sorted(model.named_parameters()):
        lower = name.lower()
        stored_across = kind == "GPT2LMHeadModel" and value.dim() == 2 and ".h." in name
        columns = value.shape[0] if stored_across else value[0].numel()
        numbers = torch.randn(value.shape, generator=generator)
        if value.dim() == 1:
            norm = ("norm" in lower or ".ln_" in lower) and lower.endswith("weight")
            numbers = numbers * 0.1 + (1 if norm and not kind.startswith("Gemma") else 0)
        elif any(part in lower for part in ("wqkv", "c_attn")):
            numbers *= columns**-0.5
            third = numbers.shape[1 if stored_across else 0] // 3
            (numbers.T if stored_across else numbers)[: 2 * third] *= spread**0.5
        elif any(part in lower for part in ("embedding", "embed_tokens", "shared", "wte", "wpe", "token")):
            numbers *= columns**-0.5 if "projection" in lower or kind.startswith("Gemma") else 1
        elif "relative_attention_bias" not in lower:
            numbers *= columns**-0.5
            if any(part in lower for part in (".q.", ".k.", "query", "key", "q_proj", "k_proj", "q_lin", "k_lin")):
                numbers *= spread**0.5
        numbers = numbers.bfloat16().float()
        numbers[numbers.abs() < 2.0**-14] = 0  # of float16 these would be subnormal
        value.data = numbers


def write(folder: Path, family: Family) -> None:
    torch.manual_seed(0)
    model = family.kind(family.config()).eval()
    fill(model)
    model.tie_weights()
    model.save_pretrained(folder)
    if family.tokenizer:
        files = checkpoints.golden("encoders").json["tokenizers"][family.tokenizer]["files"]
        for name, content in files.items():
            checkpoints.write(folder, name, content)
    elif family.compare is _vit:
        checkpoints.write(
            folder,
            "preprocessor_config.json",
            dict(
                image_processor_type="ViTImageProcessor", do_resize=True, resample=2,
                size=dict(height=64, width=64), do_rescale=True, rescale_factor=1 / 255,
                do_normalize=True, image_mean=[0.5] * 3, image_std=[0.5] * 3,
            ),  # fmt: skip
        )
    elif family.compare is _t5:
        checkpoints.write(folder, "tokenizer.json", checkpoints.tiny_unigram())
    else:
        checkpoints.write(folder, "tokenizer.json", checkpoints.tiny_tokenizer())


@dataclasses.dataclass(frozen=True)
class Error:
    """Of one output in one type, relative to the size of transformers' in float32."""

    output: str
    stof: float
    own: float  # transformers'

    @property
    def ratio(self) -> float:
        return self.stof / self.own

    def is_good(self, dtype: str) -> bool:
        return self.stof <= FLOAT32 if dtype == "float32" else self.ratio <= LARGEST_RATIO


def errors(folder: Path, name: str, dtype: str, device: str) -> list[Error]:
    family = FAMILIES[name]

    def load(torch_type: Any, place: str) -> Any:
        return family.kind.from_pretrained(folder, dtype=torch_type).eval().to(place)

    model = stof.load(folder, device=device, dtype=dtype)
    assert dtype in model.place and ("CPU" in model.place) == (device == "cpu"), model.place
    exact, narrow = load(torch.float32, "cpu"), load(getattr(torch, dtype), device)
    found = []
    with torch.no_grad():
        for output, (ours, of) in family.compare(model).items():
            expected = of(exact)
            assert ours.shape == expected.shape, (output, ours.shape, expected.shape)
            size = np.linalg.norm(expected)
            found.append(
                Error(
                    output,
                    float(np.linalg.norm(ours - expected) / size),
                    float(np.linalg.norm(of(narrow) - expected) / size),
                )
            )
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("families", nargs="*", metavar="FAMILY", help=", ".join(FAMILIES))
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    options = parser.parse_args()
    good = True
    for name in options.families or FAMILIES:
        on_gpu = options.device == "cuda" and FAMILIES[name].gpu
        with tempfile.TemporaryDirectory() as folder:
            write(Path(folder), FAMILIES[name])
            for dtype in ("bfloat16", "float16") if on_gpu else ("float32",):
                for error in errors(Path(folder), name, dtype, "cuda" if on_gpu else "cpu"):
                    fits = error.is_good(dtype)
                    good = good and fits
                    print(
                        f"{'ok ' if fits else 'BAD'} {name:10} {dtype:8} {error.output}: stof "
                        f"{error.stof:.2e}, transformers {error.own:.2e}"
                        + (f", ratio {error.ratio:.2f}" if on_gpu else ""),
                        flush=True,
                    )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
