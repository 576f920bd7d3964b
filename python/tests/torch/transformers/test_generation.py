"""Caches: growing, sliding and static; prompts of several lengths; beams."""

import pytest
import torch
from transformers import DynamicCache, StaticCache

from comparing import ON_GPU
from models import CAUSAL, MODEL_DTYPE, assert_as_eager, inputs, model, padding

NEW_TOKENS = 12


def prompt(name, side):
    ids, mask = inputs(name)["input_ids"], padding(side)
    return (ids, None) if mask is None else (torch.where(mask.bool(), ids, 0), mask)


def generate(name, attention, dtype, side, **options):
    ids, mask = prompt(name, side)
    return model(name, attention, dtype).generate(
        ids, attention_mask=mask, max_new_tokens=NEW_TOKENS, do_sample=False, pad_token_id=0,
        eos_token_id=None, **options,
    )  # fmt: skip


@pytest.mark.skipif(ON_GPU, reason="16-bit logits of random weights are too near to one another")
@pytest.mark.parametrize("side", ["none", "left"])
@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("name", [*CAUSAL, "t5"])
def test_greedy_tokens(name, cache, side):
    options = {} if cache == "dynamic" else {"cache_implementation": "static"}
    eager = generate(name, "eager", torch.float32, side, **options)
    assert torch.equal(generate(name, "stof", torch.float32, side, **options), eager)


@pytest.mark.skipif(ON_GPU, reason="16-bit logits of random weights are too near to one another")
@pytest.mark.parametrize("name", ["gpt2", "gemma2", "t5"])
def test_beams(name):
    eager = generate(name, "eager", torch.float32, "left", num_beams=3)
    assert torch.equal(generate(name, "stof", torch.float32, "left", num_beams=3), eager)


def cached_logits(name, attention, dtype, cache, side, sizes):
    """Logits of a sequence that comes in pieces of these sizes, the last piece's last token first
    seen in the last step; and of the whole sequence at once."""
    the_model = model(name, attention, dtype)
    total = sum(sizes)
    ids = inputs(name, length=total)["input_ids"]
    mask = padding(side, length=total)
    config = the_model.config
    past = (
        DynamicCache(config=config)
        if cache == "dynamic"
        else StaticCache(config=config, max_cache_len=total + 3)
    )
    logits, start = [], 0
    with torch.no_grad():
        for size in sizes:
            end = start + size
            seen = None if mask is None else mask[:, :end]
            positions = torch.arange(start, end, device=ids.device)[None]
            step = the_model(
                ids[:, start:end], attention_mask=seen, past_key_values=past, position_ids=positions
            )
            logits.append(step.logits)
            start = end
    return torch.cat(logits, 1), mask


@pytest.mark.parametrize("side", ["none", "left"])
@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("sizes", [(9, 1, 1, 1, 1, 1), (4, 6, 1, 3)], ids=["steps", "pieces"])
@pytest.mark.parametrize("name", CAUSAL)
def test_logits_of_pieces(name, cache, side, sizes):
    got, mask = cached_logits(name, "stof", MODEL_DTYPE, cache, side, sizes)
    eager, _ = cached_logits(name, "eager", MODEL_DTYPE, cache, side, sizes)
    exact, _ = cached_logits(name, "eager", torch.float32, cache, side, sizes)
    assert_as_eager(got, eager, exact, MODEL_DTYPE, keep=mask)


def test_decoding_steps_make_few_plans():
    """A step's plan serves all layers and, in a second text of the same length, all of its
    steps."""
    import stof

    ids = inputs("llama", batch=1)["input_ids"]
    the_model = model("llama", "stof", MODEL_DTYPE)
    options = dict(max_new_tokens=NEW_TOKENS, do_sample=False, pad_token_id=0, eos_token_id=None)
    stof.cache_clear()
    the_model.generate(ids, **options)
    first = stof.cache_info().misses
    assert first <= NEW_TOKENS
    the_model.generate(ids + 1, **options)
    assert stof.cache_info().misses == first
    stof.cache_clear()
    the_model.generate(ids, cache_implementation="static", disable_compile=True, **options)
    assert stof.cache_info().misses == 2  # the prompt, and all steps
