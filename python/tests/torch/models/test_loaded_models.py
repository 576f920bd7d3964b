"""stof.load() on the device under test, against what transformers computed in float64."""

import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import stof
import torch
from comparing import DEVICE, ON_GPU

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
import checkpoints  # noqa: E402
from transformers import AutoModel, AutoModelForCausalLM  # noqa: E402

#: Largest difference of probabilities.
OF_PROBABILITIES = {"float32": 1e-5, "float16": 1e-2, "bfloat16": 6e-2}
DTYPES = ("float16", "bfloat16") if ON_GPU else ("float32",)


@pytest.fixture(params=DTYPES)
def dtype(request):
    return request.param


def loaded(make, tmp_path, dtype, **how):
    model = stof.load(make(tmp_path, **how), device=DEVICE, dtype=dtype)
    assert dtype in model.place and ("CPU" in model.place) != ON_GPU
    return model


def assert_rounded(found, expected, kind, folder, ids, dtype):
    """In float32 equal but for 1e-5; in a narrow type, whose roundings weights this large make many times
    larger, as near as transformers' own model of that type."""
    size = np.linalg.norm(expected)
    error = np.linalg.norm(found - expected) / size
    if dtype == "float32":
        assert checkpoints.relative_error(found, expected) < 1e-5
        return
    model = kind.from_pretrained(folder, dtype=getattr(torch, dtype)).eval().to(DEVICE)
    with torch.no_grad():
        out = model(torch.tensor([ids], device=DEVICE))
    own = out.last_hidden_state if kind is AutoModel else out.logits
    # So few numbers scatter (1.505 once, RoBERTa in float16); families.py holds whole models to 1.5.
    allowed = 2 * np.linalg.norm(own[0].double().cpu() - expected) / size
    assert error < allowed, (error, allowed)


@pytest.mark.parametrize("name", ["bert", "roberta", "distilbert", "modernbert"])
def test_encoders(name, dtype, tmp_path):
    golden = checkpoints.golden("encoders")
    model = loaded(checkpoints.encoder, tmp_path, dtype, name=name)
    text = golden.json["tokenizers"][golden.case(name)["tokenizer"]]["text"]
    states = model.encode_tokens(["a", text])[1]
    expected = golden.tensors[f"states.{name}"]
    assert_rounded(states, expected, AutoModel, tmp_path, model.tokenize(text).ids, dtype)
    found = model.embed([text, "a"])
    assert np.allclose(found[0], states.mean(axis=0), atol=OF_PROBABILITIES[dtype])
    narrow = model.embed(text, mask="window(1, 1)")
    assert not np.allclose(narrow, found[0], atol=1e-3)
    probabilities = golden.tensors[f"logits.{name}"].astype("f8")
    probabilities = np.exp(probabilities - probabilities.max(axis=1, keepdims=True))
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    for place, row in zip(model.fill_mask(text, count=40), probabilities):
        filled = np.zeros(40)
        filled[[c.id for c in place.candidates]] = [c.probability for c in place.candidates]
        assert np.abs(filled - row).max() < OF_PROBABILITIES[dtype]


@pytest.mark.parametrize("of, name", [("llama", "base"), ("llama", "qwen2 window"), ("gpt2", "base")])
def test_generators(of, name, dtype, tmp_path):
    golden = checkpoints.golden(of)
    model = loaded(checkpoints.generator, tmp_path, dtype, name=name, of=of)
    logits = model.logits(golden.json["ids"], prefill_chunk=7)
    expected = golden.tensors[f"logits.{name}"]
    assert_rounded(logits, expected, AutoModelForCausalLM, tmp_path, golden.json["ids"], dtype)
    how = dict(max_tokens=20, temperature=0.8, seed=2)
    written = model.generate("hello world", **how)
    stream = model.generate("hello world", stream=True, **how)
    assert "".join(stream) == written and stream.result.text == written
    assert model.generate_all(["hello world"], **how)[0].text == written
    with model.generate("abc", stream=True, max_tokens=60, temperature=1) as stream:
        next(stream)


def test_threads_and_streams_share_a_model(dtype, tmp_path):
    model = loaded(checkpoints.generator, tmp_path, dtype)
    expected = model.generate("abc", max_tokens=12)
    results = [None] * 4

    def work(i):
        results[i] = model.generate("abc", max_tokens=12)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(results))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [expected] * 4
    model.close()
    with pytest.raises(stof.InvalidArgument, match="closed"):
        model.generate("abc")


def test_auto_takes_the_device(tmp_path):
    """And the CPU where float32 is asked for."""
    checkpoints.encoder(tmp_path)
    model = stof.load(tmp_path, device="auto")
    if ON_GPU:
        assert "CPU" not in model.place and model.place_note == "", model.place_note
    assert stof.load(tmp_path, device="auto", dtype="float32").place == "CPU, float32"
