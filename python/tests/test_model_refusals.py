"""What stof.load() and models refuse, and in which words."""

import os
import re
import subprocess
import sys

import checkpoints
import numpy as np
import pytest
import stof


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    return stof.load(checkpoints.encoder(tmp_path_factory.mktemp("bert")))


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    return stof.load(checkpoints.generator(tmp_path_factory.mktemp("llama")))


@pytest.fixture(scope="module")
def vit(tmp_path_factory):
    return stof.load(checkpoints.classifier(tmp_path_factory.mktemp("vit")))


def test_paths_without_a_model(tmp_path):
    with pytest.raises(stof.NotFound, match="no such: expected the folder of a model or a .gguf file"):
        stof.load(tmp_path / "no such")
    with pytest.raises(stof.NotFound, match=r"expected config.json or a .gguf file in this folder"):
        stof.load(tmp_path)
    (tmp_path / "file.txt").write_text("x")
    with pytest.raises(stof.InvalidArgument, match=r"file.txt: expected .* got another file"):
        stof.load(tmp_path / "file.txt")
    (tmp_path / "a.gguf").write_bytes(b"GGUX")
    for path in (tmp_path, tmp_path / "a.gguf"):
        with pytest.raises(stof.Corrupt, match="a.gguf"):
            stof.load(path)
    for path in (None, 3, object()):
        with pytest.raises(stof.InvalidArgument, match="^path: expected a path"):
            stof.load(path)


def test_checkpoints_that_cannot_be_honoured(tmp_path):
    checkpoints.encoder(tmp_path, model_type="mamba")
    with pytest.raises(
        stof.Unsupported, match='config.json: model_type: expected "bert", .*"mt5", got "mamba"'
    ):
        stof.load(tmp_path)
    checkpoints.encoder(tmp_path, hidden_act="silu")
    with pytest.raises(stof.Unsupported, match="config.json: hidden_act: expected .* got .*silu"):
        stof.load(tmp_path)
    checkpoints.encoder(tmp_path, intermediate_size=41)
    with pytest.raises(stof.Corrupt, match=r"intermediate.dense.weight.*\[41, 24\].*\[40, 24\]"):
        stof.load(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(stof.NotFound, match="model.safetensors"):
        stof.load(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(stof.Corrupt, match="config.json"):
        stof.load(tmp_path)


@pytest.mark.skipif("STOF_LIBRARY" in os.environ, reason="a library that is linked with oneDNN")
def test_without_onednn(bert):
    """Attention works, a model on the CPU says what to install."""
    script = "import sys, numpy, stof; x = numpy.ones((1, 1, 4, 8), 'f4'); stof.attention(x, x, x, 'causal')"
    for load, message in (
        ("", ""),
        (f"; stof.load({bert.path!r})", "NotFound: oneDNN: expected libdnnl.* got none: /no such folder.*Debian: libdnnl[23]"),
    ):
        done = subprocess.run(
            [sys.executable, "-c", script + load],
            env={**os.environ, "STOF_LIBRARIES": "/no such folder"},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert re.search(message, done.stderr) and (done.returncode == 0) == (not load), done.stderr


@pytest.mark.parametrize(
    "options, kind, message",
    [
        (dict(device="tpu"), "InvalidArgument", '^device: expected "cpu", "cuda", "auto"'),
        (dict(device="cpu:1"), "InvalidArgument", "^device: expected .*got 'cpu:1'"),
        (dict(device="cuda:1"), "Unsupported", "^device: .*CUDA_VISIBLE_DEVICES"),
        (dict(dtype="float8"), "InvalidArgument", "^dtype: expected"),
        (dict(dtype="float16"), "Unsupported", "float32.*float16"),
        (dict(dtype="int32", device="auto"), "Unsupported", "int32"),
        (dict(tuning="on"), "InvalidArgument", '^tuning: expected "cached" or "off", got \'on\''),
    ],
)
def test_where_and_in_what_models_compute(options, kind, message, bert):
    with pytest.raises(getattr(stof, kind), match=message):
        stof.load(bert.path, **options)


def test_classifiers_compute_on_the_cpu_in_float32(vit):
    for options in (dict(device="cuda"), dict(dtype="bfloat16")):
        with pytest.raises(stof.Unsupported, match="^(device|dtype): image classifiers compute"):
            stof.load(vit.path, **options)
    assert stof.load(vit.path, device="auto", dtype=np.float32).place == "CPU, float32"


@pytest.mark.parametrize(
    "texts, options, message",
    [
        (["a", 3], {}, r"^texts\[1\]: expected text, got 3"),
        (b"a", {}, "^texts: expected a text or a list of texts, got b'a'"),
        ("\ud800", {}, r"^texts\[0\]: expected text that UTF-8 can write"),
        ("a", dict(max_tokens=0), "^max_tokens: expected at least 1, got 0"),
        ("a", dict(max_tokens=33), "^max_tokens: expected .* got 33"),
        ("a", dict(batch=0), "^batch: expected at least 1, got 0"),
        ("a", dict(num_threads=0), "^num_threads: expected at least 1, got 0"),
        ("a", dict(num_threads=1 << 31), "^num_threads: expected a whole number of 32 bits"),
        ("a", dict(mask="casual"), 'column 1: unknown .*"casual"'),
        ("a", dict(mask={"rules": [{"layers": [2], "mask": "all"}]}), r"^mask: rules\[0\].*layer"),
        ("a", dict(mask={"default": object()}), r"^mask: expected \{.*got .*: object"),
        ("a", dict(mask=stof.masks.causal), r"got function; call it: stof.masks.causal\(...\)"),
        ("a", dict(mask=np.zeros((3, 3))), "^mask: expected booleans .*got float64"),
        ("a", dict(mask=np.ones((4, 4), "?")), r"mask.*\[4, 4\]|dense"),
        ("a", dict(mask=stof.masks.key_lengths([1, 2])), "^mask: expected one mask for all texts"),
        ("a", dict(progress=3), "^progress: expected a function or None, got 3"),
    ],
)
def test_arguments_of_encoders(texts, options, message, bert):
    for call in (bert.embed, bert.encode_tokens, bert.fill_mask):
        with pytest.raises(stof.InvalidArgument, match=message):
            call(texts, **options)


def test_more_arguments_of_encoders(bert):
    with pytest.raises(stof.InvalidArgument, match="^normalize: expected True or False, got 1"):
        bert.embed("a", normalize=1)
    with pytest.raises(stof.InvalidArgument, match="^count: expected at least 1, got 0"):
        bert.fill_mask("[MASK]", count=0)
    with pytest.raises(stof.InvalidArgument, match="^text: expected text, got 3"):
        bert.tokenize(3)


@pytest.mark.parametrize(
    "options, message",
    [
        (dict(max_tokens=0), "^max_tokens: expected at least 1, got 0"),
        (dict(temperature=-1), "^temperature: expected .*got -1"),
        (dict(temperature=float("nan")), "^temperature: expected .*got nan"),
        (dict(top_k=0), "^top_k: expected at least 1, got 0"),
        (dict(top_p=0), "^top_p: expected more than 0 and at most 1, got 0"),
        (dict(top_p=1.5), "^top_p: expected more than 0 and at most 1, got 1.5"),
        (dict(seed=-1), "^seed: expected a whole number from 0"),
        (dict(stop=["a", 3]), r"^stop\[1\]: expected text, got 3"),
        (dict(stop=""), "^stop.*expected"),
        (dict(prefill_chunk=0), "^prefill_chunk: expected at least 1, got 0"),
        (dict(num_threads=-1), "^num_threads: expected at least 1, got -1"),
        (dict(mask=stof.masks.per_head([stof.masks.causal()] * 2)), "^mask: expected one mask for"),
    ],
)
def test_options_of_generators(options, message, llama):
    for call in (
        lambda: llama.generate("a", **options),
        lambda: llama.generate_all(["a", "b"], **options),
        lambda: "".join(llama.generate("a", stream=True, **options)),
    ):
        with pytest.raises(stof.InvalidArgument, match=message):
            call()


def test_prompts_and_ids(llama):
    with pytest.raises(stof.InvalidArgument, match="^prompt: expected text, got list; generate_all"):
        llama.generate(["a"])
    with pytest.raises(stof.InvalidArgument, match="^prompts: expected a list .* generate\\(\\) takes"):
        llama.generate_all("a")
    with pytest.raises(stof.InvalidArgument, match=r"^prompts\[1\]: expected text, got 3"):
        llama.generate_all(["a", 3])
    with pytest.raises(stof.InvalidArgument, match="^prompt: expected at least one token"):
        llama.generate("")
    with pytest.raises(stof.InvalidArgument, match="^prompt: expected at most 64 tokens.* got 65"):
        llama.generate("a" * 65)
    with pytest.raises(stof.InvalidArgument, match="^stream: expected True or False, got 1"):
        llama.generate("a", stream=1)
    with pytest.raises(stof.InvalidArgument, match="token 1: expected an id below 50, got 50"):
        llama.logits([1, 50])
    with pytest.raises(stof.InvalidArgument, match=r"^ids\[0\]: expected a token's number, got -1"):
        llama.logits([-1])
    with pytest.raises(stof.InvalidArgument, match="60"):
        llama.detokenize([60])
    with pytest.raises(stof.InvalidArgument, match=r"^messages\[0\]"):
        llama.chat_prompt([3])


def test_images(vit, tmp_path):
    with pytest.raises(stof.NotFound, match="none.png"):
        vit.classify(tmp_path / "none.png")
    (tmp_path / "text.png").write_text("no picture")
    with pytest.raises(stof.Unsupported, match="text.png: expected a PNG or JPEG image"):
        vit.classify(tmp_path / "text.png")
    with pytest.raises(stof.Unsupported, match="EXIF"):
        vit.classify([checkpoints.image("vit_turned.jpg")])
    for wrong in (np.zeros((12, 12), "u1"), np.zeros((12, 12, 4), "u1"), np.zeros((12, 12, 3), "f4")):
        with pytest.raises(stof.InvalidArgument, match=r"^image: expected uint8 \[height, width, 3\]"):
            vit.pixels(wrong)
    for wrong in (np.zeros((1, 3, 12, 13), "f4"), np.zeros((3, 12, 12)), np.zeros((2, 2), "u1")):
        with pytest.raises(stof.InvalidArgument, match=r"^pixels: expected float32 \[images, 3, 12, 12\]"):
            vit.classify(wrong)
    with pytest.raises(stof.InvalidArgument, match="^images: expected paths or arrays, got a list of both"):
        vit.classify(["a.png", np.zeros((12, 12, 3), "u1")])
    with pytest.raises(stof.InvalidArgument, match="^count: expected at least 1, got 0"):
        vit.classify(checkpoints.image("vit_rgb.png"), count=0)
