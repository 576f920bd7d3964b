"""stof.load(): small checkpoints against what transformers computed, in float64."""

import functools
import os
import pickle
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import checkpoints
import numpy as np
import pytest
import stof
from stof import masks

RELATIVE = 1e-5  # float32 against float64, of the largest value


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A folder for each model."""

    def folder(make, **how):
        return make(tmp_path_factory.mktemp("model"), **how)

    return dict(
        bert=folder(checkpoints.encoder),
        llama=folder(checkpoints.generator, eos_token_id=49),
        vit=folder(checkpoints.classifier),
        # Its texts have no end: 20000 tokens take a minute and more.
        endless=folder(checkpoints.generator, max_position_embeddings=1 << 15),
    )


@pytest.fixture(scope="module")
def bert(folders):
    return stof.load(folders["bert"])


@pytest.fixture(scope="module")
def llama(folders):
    """Calls of it use one thread: a team costs more than it gains on models this small."""
    return OneThread(stof.load(folders["llama"]))


class OneThread:
    def __init__(self, model):
        self.model = model
        for name in ("generate", "generate_all", "logits"):
            setattr(self, name, functools.partial(getattr(model, name), num_threads=1))

    def __getattr__(self, name):
        return getattr(self.model, name)


@pytest.fixture(scope="module")
def vit(folders):
    return stof.load(folders["vit"])


@pytest.fixture(scope="module")
def text():
    """A text with two mask tokens, and its ids."""
    found = checkpoints.golden("encoders").json["tokenizers"]["bert"]
    return found["text"], found["ids"]


def softmax(logits):
    powers = np.exp(logits.astype("f8") - logits.max())
    return powers / powers.sum()


# --- encoders -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["bert", "roberta", "distilbert", "modernbert"])
def test_token_states_are_transformers_s(name, tmp_path):
    golden = checkpoints.golden("encoders")
    model = stof.EncoderModel.load(checkpoints.encoder(tmp_path, name))
    text = golden.json["tokenizers"][golden.case(name)["tokenizer"]]
    states = model.encode_tokens(["a", text["text"], ""], num_threads=1)
    expected = golden.tensors[f"states.{name}"]
    assert checkpoints.relative_error(states[1], expected) < RELATIVE
    assert [len(state) for state in states] == [3, len(text["ids"]), 2]
    alone = model.encode_tokens(text["text"])
    assert checkpoints.relative_error(alone, expected) < RELATIVE


def test_embeddings_are_the_means_of_states(bert, text):
    expected = checkpoints.golden("encoders").tensors["states.bert"].mean(axis=0)
    one = bert.embed(text[0])
    assert checkpoints.relative_error(one, expected) < RELATIVE
    both = bert.embed(["a b", text[0]], batch=1, num_threads=1)
    assert both.shape == (2, bert.hidden_size) and both.dtype == np.float32
    assert checkpoints.relative_error(both[1], expected) < RELATIVE
    unit = bert.embed(text[0], normalize=True)
    assert checkpoints.relative_error(unit, expected / np.linalg.norm(expected)) < RELATIVE
    assert np.array_equal(bert.embed(text[0], normalize=False), one)
    assert bert.embed([]).shape == (0, bert.hidden_size)


def test_folders_of_sentence_transformers_say_pooling_and_length(tmp_path, text):
    checkpoints.encoder(tmp_path)
    modules = ["Transformer", "Pooling", "Normalize"]
    paths = ["", "1_Pooling", "2_Normalize"]
    types = [f"sentence_transformers.models.{name}" for name in modules]
    checkpoints.write(
        tmp_path,
        "modules.json",
        [dict(idx=i, name=str(i), path=p, type=t) for i, (p, t) in enumerate(zip(paths, types))],
    )
    (tmp_path / "1_Pooling").mkdir()
    checkpoints.write(
        tmp_path / "1_Pooling",
        "config.json",
        dict(word_embedding_dimension=24, pooling_mode_cls_token=True),
    )
    model = stof.load(tmp_path)
    expected = checkpoints.golden("encoders").tensors["states.bert"][0]
    assert "cls pooling, normalised" in model.description
    unit = expected / np.linalg.norm(expected)
    assert checkpoints.relative_error(model.embed(text[0]), unit) < RELATIVE
    assert checkpoints.relative_error(model.embed(text[0], normalize=False), expected) < RELATIVE


def test_masks_and_limits_of_encoders(bert, text):
    whole = bert.embed(text[0])
    length = len(text[1])
    seen = np.abs(np.subtract.outer(np.arange(length), np.arange(length))) <= 1
    narrow = bert.embed(text[0], mask=masks.window(1, 1))
    assert not np.allclose(whole, narrow)
    assert np.array_equal(narrow, bert.embed(text[0], mask="window(1, 1)"))
    assert np.array_equal(narrow, bert.embed(text[0], mask=seen))
    assert np.array_equal(narrow, bert.embed(text[0], mask={"default": masks.window(1, 1)}))
    last = {"default": "all", "rules": [{"layers": [1], "mask": masks.window(1, 1)}]}
    assert not np.allclose(bert.embed(text[0], mask=last), narrow)
    assert not np.allclose(bert.embed(text[0], mask=last), whole)
    cut = bert.tokenize(text[0], max_tokens=4)
    assert cut.truncated and len(cut) == 4 and cut.ids[:3] == text[1][:3]
    assert cut.tokens[0] == "[CLS]" and cut.tokens[-1] == "[SEP]"
    assert not bert.tokenize(text[0]).truncated and bert.tokenize(text[0]).ids == text[1]
    assert bert.encode_tokens(text[0], max_tokens=4).shape == (4, bert.hidden_size)
    assert not np.allclose(whole, bert.embed(text[0], max_tokens=4))
    assert bert.tokenize("a\0b").ids == bert.tokenize("ab").ids  # NUL is dropped as elsewhere


def test_filled_masks_have_transformers_s_probabilities(bert, text):
    places = bert.fill_mask(text[0], count=3)
    logits = checkpoints.golden("encoders").tensors["logits.bert"]
    assert [text[1][place.position] for place in places] == [4, 4]
    assert [bert.tokenize(text[0]).tokens[p.position] for p in places] == ["[MASK]"] * 2
    for place, row in zip(places, logits):
        expected = softmax(row)
        assert [c.id for c in place.candidates] == list(np.argsort(-expected)[:3])
        for candidate in place.candidates:
            assert abs(candidate.probability / expected[candidate.id] - 1) < 5e-5
            assert candidate.token and candidate.text
    assert bert.fill_mask([text[0], "[MASK]"])[1][0].position == 1
    with pytest.raises(stof.InvalidArgument, match=r"text 1: expected the mask token \"\[MASK\]\""):
        bert.fill_mask("a")


# --- generators -----------------------------------------------------------------------------------


@pytest.mark.parametrize("of, name", [("llama", "base"), ("llama", "qwen2 window"), ("gpt2", "base")])
def test_logits_are_transformers_s(of, name, tmp_path):
    golden = checkpoints.golden(of)
    model = stof.TextGenerator.load(checkpoints.generator(tmp_path, name, of))
    logits = model.logits(golden.json["ids"], prefill_chunk=7, num_threads=1)
    assert checkpoints.relative_error(logits, golden.tensors[f"logits.{name}"]) < RELATIVE


def test_greedy_text_is_that_of_the_logits(llama):
    ids = llama.tokenize("hello world").ids
    expected = []
    while len(expected) < 20 and 49 not in expected:
        expected.append(int(llama.logits(ids + expected)[-1].argmax()))
    (result,) = llama.generate_all(["hello world"], max_tokens=20, prefill_chunk=4)
    assert result.ids == expected and result.prompt_tokens == len(ids) == 11
    assert result.text == llama.detokenize(expected) == str(result)
    assert result.stopped_by == ("end token" if expected[-1] == 49 else "token limit")
    assert result.decode_seconds > 0 and result.prefill_seconds > 0
    assert llama.generate("hello world", max_tokens=20) == result.text
    stream = llama.generate("hello world", max_tokens=20, stream=True)
    assert "".join(stream) == result.text and stream.result.ids == expected
    assert list(stream) == []


def test_sampling_stops_and_masks(llama):
    how = dict(temperature=1.5, seed=3, max_tokens=12)
    whole = llama.generate("abc", **how)
    assert whole == llama.generate("abc", **how) != llama.generate("abc", **{**how, "seed": 4})
    stop = whole[4:7]
    assert llama.generate("abc", stop=stop, **how) == whole[: whole.index(stop)]
    assert llama.generate_all(["abc"], stop=["never", stop], **how)[0].stopped_by == "stop string"
    assert llama.generate("abc", **how, top_k=1) == llama.generate("abc", max_tokens=12)
    assert llama.generate("abc", **how, top_p=1e-9) == llama.generate("abc", max_tokens=12)
    ids = llama.tokenize("hello world").ids
    assert not np.allclose(llama.logits(ids), llama.logits(ids, mask="window(2, 0)"))
    longest = llama.generate_all(["abc"], temperature=2, max_tokens=1000)[0]
    assert longest.stopped_by in ("end token", "no further positions")


def test_several_prompts_are_written_as_each_alone(llama):
    prompts = ["hello world", "a", "several words of a text"]
    together = llama.generate_all(prompts, max_tokens=10, temperature=1.2, seed=5)
    for prompt, text in zip(prompts, together):
        assert text.text == llama.generate(prompt, max_tokens=10, temperature=1.2, seed=5)
    assert llama.generate_all([]) == []
    with pytest.raises(stof.InvalidArgument, match="prompt 1: expected at least one token"):
        llama.generate_all(["a", ""])


def test_a_stream_ends_where_it_is_told(llama, folders):
    how = dict(stream=True, temperature=1, max_tokens=20000, num_threads=1)
    endless = stof.load(folders["endless"])
    with endless.generate("abc", **how) as stream:
        assert next(stream) and stream.result is None
    assert list(stream) == [] and stream.result is None
    assert threading_ended("stof-generate")
    for _ in endless.generate("abc", **how):
        break  # dropped
    assert threading_ended("stof-generate")
    bad = llama.generate("a" * 65, stream=True)
    with pytest.raises(stof.InvalidArgument, match="prompt: expected at most 64 tokens"):
        next(bad)
    with stof.load(folders["llama"]) as model:
        late = model.generate("abc", stream=True, max_tokens=5, num_threads=1)
    assert "".join(late) == llama.generate("abc", max_tokens=5)  # a closed model ends its calls


def threading_ended(name, seconds=10.0):
    for thread in threading.enumerate():
        if thread.name == name:
            thread.join(seconds)
    return all(thread.name != name for thread in threading.enumerate())


def test_sentencepiece_s_files(tmp_path):
    """Of a library that is opened when it is needed; tests/model compares its ids."""
    vocab = 2000
    checkpoints.generator(tmp_path, vocab_size=vocab)
    case = checkpoints.golden("llama").case("base")
    weights = {
        key: checkpoints.golden("llama").cut(f"weight.{key}", shape)
        for key, shape in case["tensors"].items()
    }
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        weights[name] = np.resize(weights[name], (vocab, 24))
    checkpoints.save(tmp_path, weights)
    (tmp_path / "tokenizer.json").unlink()
    shutil.copy(checkpoints.DATA / "spm_bpe.model", tmp_path / "tokenizer.model")
    config = dict(tokenizer_class="LlamaTokenizer", bos_token="<s>", eos_token="</s>")
    checkpoints.write(tmp_path, "tokenizer_config.json", config)
    model = stof.load(tmp_path)
    found = model.tokenize("The words of a document")
    assert any("\u2581" in token for token in found.tokens) and len(found) < 24
    assert model.detokenize(found.ids) == "The words of a document"


def test_conversations(tmp_path, llama):
    chat = checkpoints.golden_json("chat_golden.json")[0]
    checkpoints.generator(tmp_path)
    (tmp_path / "chat_template.jinja").write_text(chat["template"], encoding="utf-8")
    model = stof.load(tmp_path)
    for case in chat["cases"]:
        assert model.chat_prompt(case["messages"]) == case["prompt"]
    asked = model.chat_prompt("a")
    assert asked == model.chat_prompt([{"role": "user", "content": "a"}])
    with pytest.raises(stof.Unsupported, match="chat template.*got none"):
        llama.chat_prompt("a")
    with pytest.raises(stof.InvalidArgument, match=r"messages\[0\]: expected"):
        model.chat_prompt([{"role": "user"}])


# --- image classifiers ----------------------------------------------------------------------------


def test_labels_have_transformers_s_probabilities(vit):
    path = checkpoints.image("vit_rgb.png")
    expected = softmax(checkpoints.golden("vit").tensors["logits.base"])
    labels = vit.classify(path)
    assert [label.id for label in labels] == list(np.argsort(-expected))
    for label in labels:
        assert abs(label.probability - expected[label.id]) < 1e-5
        assert label.label == vit.labels[label.id]
    done = []
    both = vit.classify([path, checkpoints.image("vit_grey.png")], batch=1,
                        progress=lambda *of: done.append(of))  # fmt: skip
    assert both[0] == labels != both[1] and done == [(1, 2), (2, 2)]
    assert len(vit.classify(path, count=1)) == 1
    assert vit.classify(path, mask="window(1, 1)") != labels


def test_pixels_of_images_in_memory(vit):
    """Pixels of a file of this size, from memory."""
    values = np.random.default_rng(0).integers(0, 256, (12, 12, 3), "u1")
    pixels = vit.pixels(values)
    assert pixels.shape == (3, 12, 12) and pixels.dtype == np.float32
    plain = values.transpose(2, 0, 1) / 255.0  # not resized
    slope, shift = np.polyfit(plain.ravel(), pixels.ravel(), 1)
    assert np.allclose(pixels, plain * slope + shift, atol=1e-5)
    labels = vit.classify(values)
    assert labels == vit.classify(pixels) == vit.classify([values])[0]
    assert labels == vit.classify(pixels[None])[0] == vit.classify(np.stack([pixels] * 3), batch=2)[2]
    assert labels == vit.classify(values[:, ::-1][:, ::-1])
    assert vit.classify([]) == []


# --- all ------------------------------------------------------------------------------------------


def test_what_a_model_is(bert, llama, vit, folders):
    assert (bert.hidden_size, bert.num_layers, bert.num_heads, bert.max_tokens) == (24, 2, 3, 32)
    assert (llama.vocab_size, llama.max_positions, llama.num_layers) == (50, 64, 3)
    assert (vit.image_height, vit.image_width, vit.num_heads, len(vit.labels)) == (12, 12, 3, 4)
    kinds = (stof.EncoderModel, stof.TextGenerator, stof.ImageClassifier)
    for model, kind in zip((bert, llama.model, vit), kinds):
        assert type(model) is kind and isinstance(model, stof.Model)
        assert model.place == "CPU, float32" and model.place_note == ""
        assert kind.__name__ in repr(model) and model.description in repr(model)
        assert Path(model.path).is_absolute() and pickle.loads(pickle.dumps(model)).path == model.path
    auto = stof.load(folders["bert"], device="auto", dtype="float32", tuning="off")
    assert auto.place == "CPU, float32"


@pytest.mark.parametrize("kind", ["bert", "llama", "vit"])
def test_methods_of_other_models_are_refused_by_name(kind, folders):
    having = dict(
        embed="bert", encode_tokens="bert", fill_mask="bert", tokenize="bert llama",
        detokenize="llama", generate="llama", generate_all="llama", chat_prompt="llama",
        logits="llama", classify="vit", pixels="vit",
    )  # fmt: skip
    names = dict(bert="EncoderModel", llama="TextGenerator", vit="ImageClassifier")
    model = stof.load(folders[kind])
    for method, kinds in having.items():
        if kind in kinds:
            assert callable(getattr(model, method))
            continue
        assert not hasattr(model, method)
        with pytest.raises(stof.NoSuchMethod, match=f"^{method}: expected .*got a stof.{names[kind]}") as error:
            getattr(model, method)
        assert all(names[k] in str(error.value) for k in kinds.split())
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        model.nothing
    for other, class_name in names.items():
        if other != kind:
            with pytest.raises(stof.Unsupported, match=f"expected a stof.{class_name}.* got a stof.{names[kind]}"):
                getattr(stof, class_name).load(folders[kind])


def test_a_closed_model_is_refused(folders):
    with stof.load(folders["llama"]) as model:
        assert not model.closed
    assert model.closed and "closed" in repr(model)
    model.close()
    for call in (
        lambda: model.generate("a"),
        lambda: model.generate("a", stream=True),
        lambda: model.generate_all(["a"]),
        lambda: model.tokenize("a"),
        lambda: model.detokenize([1]),
        lambda: model.logits([1]),
        lambda: model.__enter__(),
    ):
        with pytest.raises(stof.InvalidArgument, match="^model: expected one that is open, got .*closed"):
            call()
    for name, call in (("bert", lambda m: m.embed("a")), ("vit", lambda m: m.classify("a.png"))):
        other = stof.load(folders[name])
        other.close()
        with pytest.raises(stof.InvalidArgument, match="closed; load it again"):
            call(other)


def test_threads_share_a_model(bert, llama, text):
    expected = bert.embed(text[0], num_threads=1), llama.generate("abc", max_tokens=8)
    results = [None] * 6

    def work(i):
        results[i] = bert.embed(text[0], num_threads=1), llama.generate("abc", max_tokens=8)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(results))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for vector, written in results:
        assert np.array_equal(vector, expected[0]) and written == expected[1]


def test_what_progress_raises_ends_the_call(bert, vit):
    done = []
    bert.embed(["a", "b", "c"], batch=2, progress=lambda *of: done.append(of))
    assert done == [(2, 3), (3, 3)]

    def fail(done, total):
        raise KeyError(done)

    for call in (
        lambda: bert.embed(["a", "b"], batch=1, progress=fail),
        lambda: bert.fill_mask(["[MASK]"] * 2, batch=1, progress=fail),
        lambda: vit.classify([checkpoints.image("vit_rgb.png")] * 2, batch=1, progress=fail),
    ):
        with pytest.raises(KeyError, match="1"):
            call()


SCRIPT = """
import os, signal, sys, threading, time, stof
signal.signal(signal.SIGINT, signal.default_int_handler)  # shells start some jobs without it
model = stof.load(sys.argv[1])
def press():
    time.sleep(0.3)
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=press, daemon=True).start()
how = dict(max_tokens=20000, temperature=1, num_threads=1)
begun = time.perf_counter()
if sys.argv[2] == "exit":
    stream = model.generate("abc", stream=True, **how)
    next(stream)
    sys.exit(0)
try:
    if sys.argv[2] == "stream":
        for piece in model.generate("abc", stream=True, **how):
            pass
    else:
        model.generate("abc", **how)
except KeyboardInterrupt:
    print("interrupted", time.perf_counter() - begun)
"""


@pytest.mark.parametrize("how", ["generate", "stream", "exit"])
def test_ctrl_c_and_the_end_of_the_process_end_generate(how, folders):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(folders["endless"]), how],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    if how != "exit":
        word, seconds = done.stdout.split()
        assert word == "interrupted" and float(seconds) < 20


@pytest.mark.skipif(not hasattr(os, "fork"), reason="a system without fork()")
def test_a_forked_child_computes(bert, text):
    expected = bert.embed(text[0])
    child = os.fork()
    if child == 0:
        os._exit(0 if np.allclose(bert.embed(text[0]), expected, atol=1e-5) else 1)
    assert os.waitpid(child, 0)[1] == 0
