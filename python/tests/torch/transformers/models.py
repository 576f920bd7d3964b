"""Small models with random weights, each with the attentions "eager" and "stof".

Weights are larger than the libraries' defaults, so that attention is far from uniform and a mask
that is dropped shows.
"""

import copy
import functools

import torch
import transformers
from transformers import (
    BertConfig,
    BertModel,
    Gemma2Config,
    Gemma2ForCausalLM,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GPT2Config,
    GPT2LMHeadModel,
    GptOssConfig,
    GptOssForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    Llama4ForCausalLM,
    Llama4TextConfig,
    MistralConfig,
    MistralForCausalLM,
    ModernBertConfig,
    ModernBertModel,
    T5Config,
    T5ForConditionalGeneration,
    ViTConfig,
    ViTModel,
)

import stof.transformers
from comparing import DEVICE, ON_GPU, TOLERANCE

stof.transformers.register()
transformers.logging.set_verbosity_error()

VOCABULARY, SPREAD = 99, 0.15
_COMMON = dict(
    vocab_size=VOCABULARY, num_hidden_layers=2, hidden_size=64, intermediate_size=96,
    num_attention_heads=4, initializer_range=SPREAD, pad_token_id=0, bos_token_id=1, eos_token_id=2,
)  # fmt: skip
_DECODER = dict(**_COMMON, num_key_value_heads=2, max_position_embeddings=128)

CASES = {
    "bert": (
        BertModel,
        lambda: BertConfig(
            **_COMMON, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
        ),
    ),
    "gpt2": (
        GPT2LMHeadModel,
        lambda: GPT2Config(
            vocab_size=VOCABULARY, n_embd=64, n_layer=2, n_head=4, initializer_range=SPREAD,
            pad_token_id=0, bos_token_id=1, eos_token_id=2, scale_attn_by_inverse_layer_idx=True,
        ),
    ),
    "llama": (LlamaForCausalLM, lambda: LlamaConfig(**_DECODER)),
    "mistral": (MistralForCausalLM, lambda: MistralConfig(**_DECODER, sliding_window=5)),
    "gemma2": (
        Gemma2ForCausalLM,
        lambda: Gemma2Config(
            **_DECODER, head_dim=16, sliding_window=5, attn_logit_softcapping=2.0,
            query_pre_attn_scalar=4,
        ),
    ),
    "gemma3": (  # a layer with a window, then one without
        Gemma3ForCausalLM,
        lambda: Gemma3TextConfig(
            **_DECODER, head_dim=16, sliding_window=5, query_pre_attn_scalar=4,
            layer_types=["sliding_attention", "full_attention"],
        ),
    ),
    "llama4": (  # a layer of chunks, then one without positions
        Llama4ForCausalLM,
        lambda: Llama4TextConfig(
            **_DECODER, head_dim=16, attention_chunk_size=5, intermediate_size_mlp=96,
            num_local_experts=2, num_experts_per_tok=1,
            layer_types=["chunked_attention", "full_attention"], no_rope_layers=[1, 0],
        ),
    ),
    "modernbert": (  # a layer that sees everything, then one with a window on both sides
        ModernBertModel,
        lambda: ModernBertConfig(
            **{k: v for k, v in _COMMON.items() if k != "initializer_range"},
            initializer_range=SPREAD, initializer_cutoff_factor=1.0, local_attention=6,
            max_position_embeddings=128, cls_token_id=1, sep_token_id=2,
        ),
    ),
    "gpt_oss": (
        GptOssForCausalLM,
        lambda: GptOssConfig(
            **_DECODER, head_dim=16, sliding_window=5, num_local_experts=2, num_experts_per_tok=1
        ),
    ),
    "t5": (
        T5ForConditionalGeneration,
        lambda: T5Config(
            vocab_size=VOCABULARY, d_model=64, d_kv=16, d_ff=96, num_layers=2, num_heads=4,
            dropout_rate=0.0, decoder_start_token_id=0, pad_token_id=0, eos_token_id=2,
        ),
    ),
    "vit": (
        ViTModel,
        lambda: ViTConfig(
            num_hidden_layers=2, hidden_size=64, intermediate_size=96, num_attention_heads=4,
            image_size=32, patch_size=8, initializer_range=SPREAD,
        ),
    ),
}  # fmt: skip
CAUSAL = ("gpt2", "llama", "mistral", "gemma2", "gpt_oss")
#: Models whose layers' masks differ, which their own tests run.
MIXED = ("modernbert", "gemma3", "llama4")
TEXT = ("bert", *CAUSAL)


def make(name, attention, dtype=torch.float32, device=DEVICE, **fields):
    """The model with its one set of weights."""
    kind, config = CASES[name]
    config = config()
    for field, value in fields.items():
        setattr(config, field, value)
    torch.manual_seed(0)
    model = kind._from_config(config, attn_implementation=attention)
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            if parameter_name.endswith("sinks"):
                parameter.normal_()
    return model.eval().to(device, dtype)


@functools.lru_cache(maxsize=None)
def model(name, attention, dtype=torch.float32, device=DEVICE):
    return make(name, attention, dtype, device)


@functools.lru_cache(maxsize=None)
def _inputs(name, batch, length):
    generator = torch.Generator().manual_seed(length)
    if name == "vit":
        return dict(pixel_values=torch.randn(batch, 3, 32, 32, generator=generator))
    ids = torch.randint(3, VOCABULARY, (batch, length), generator=generator)
    if name == "t5":
        decoder = torch.randint(3, VOCABULARY, (batch, 7), generator=generator)
        return dict(input_ids=ids, decoder_input_ids=decoder)
    return dict(input_ids=ids)


def inputs(name, batch=2, length=13, dtype=None):
    """Of DEVICE; images of that element type."""
    moved = {key: value.to(DEVICE) for key, value in _inputs(name, batch, length).items()}
    if dtype is not None and "pixel_values" in moved:
        moved["pixel_values"] = moved["pixel_values"].to(dtype)
    return moved


def padding(side, batch=2, length=13):
    """None, or 1 for tokens and 0 for padding [batch, length], other lengths for every entry."""
    if side == "none":
        return None
    mask = torch.ones(batch, length, dtype=torch.int64)
    for entry in range(1, batch):
        count = 2 + 3 * entry
        if side == "left":
            mask[entry, :count] = 0
        elif side == "right":
            mask[entry, -count:] = 0
        else:
            mask[entry, 3 : 3 + count] = 0
    return mask.to(DEVICE)


def assert_as_eager(got, eager, exact, dtype, keep=None):
    """`got` is as near to the float32 result `exact` as eager's of the same type, or within the
    type's tolerance; only where `keep` (booleans of the leading dimensions) is true."""
    got, eager, exact = (x.float().cpu() for x in (got, eager, exact))
    if keep is not None:
        got, eager, exact = (x[keep.bool().cpu()] for x in (got, eager, exact))
    assert bool(torch.isfinite(got).all())
    largest = max(1.0, float(exact.abs().max()))
    allowed = max(2.0 * float((eager - exact).abs().max()), TOLERANCE[dtype] * largest)
    worst = float((got - exact).abs().max())
    assert worst <= allowed, f"off by {worst}, allowed {allowed}"


def copy_of(config):
    return copy.deepcopy(config)


#: What models run in on this device: GPU kernels take 16-bit operands.
MODEL_DTYPES = (torch.float16, torch.bfloat16) if ON_GPU else (torch.float32, torch.bfloat16)
MODEL_DTYPE = MODEL_DTYPES[0]
