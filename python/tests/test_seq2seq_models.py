"""T5 through stof.load(): a small checkpoint against what transformers computed, in float64."""

import checkpoints
import pytest
import stof

RELATIVE = 1e-5
TASKS = dict(
    summarization=dict(prefix="sum: ", max_length=5),
    translation_en_to_de=dict(prefix="to german: "),
)


@pytest.fixture(scope="module")
def t5(tmp_path_factory):
    folder = checkpoints.seq2seq(tmp_path_factory.mktemp("t5"), task_specific_params=TASKS)
    return stof.Seq2SeqGenerator.load(folder)


@pytest.mark.parametrize("name", ["base", "gated-gelu"])
def test_states_and_logits_are_transformers_s(name, tmp_path):
    golden = checkpoints.golden("t5")
    model = stof.load(checkpoints.seq2seq(tmp_path, name))
    states = model.encode(golden.json["source"], num_threads=1)
    assert checkpoints.relative_error(states, golden.tensors[f"encoded.{name}"]) < RELATIVE
    logits = model.logits(golden.json["source"], golden.json["target"], num_threads=1)
    assert checkpoints.relative_error(logits, golden.tensors[f"logits.{name}"]) < RELATIVE
    narrow = model.encode(golden.json["source"], mask="window(1, 1)")
    assert checkpoints.relative_error(narrow, states) > 1e-2


def test_greedy_text_is_that_of_the_logits(t5):
    text = "the house is small"
    ids = t5.tokenize(text).ids
    assert ids[-1] == 1 and t5.detokenize(ids) == text
    expected = []
    while len(expected) < 12 and 1 not in expected:
        expected.append(int(t5.logits(ids, expected)[-1].argmax()))
    results = t5.generate_all([text, "x"], max_tokens=12, num_threads=1)
    assert results[0].ids == expected and results[0].prompt_tokens == len(ids)
    assert results[0].text == t5.detokenize(expected) == t5.generate(text, max_tokens=12)
    assert results[1].text == t5.generate("x", max_tokens=12)
    stream = t5.generate(text, max_tokens=12, stream=True)
    assert "".join(stream) == results[0].text and stream.result.ids == expected
    how = dict(temperature=1.5, seed=3, max_tokens=12)
    whole = t5.generate(text, **how)
    assert whole != t5.generate(text, **{**how, "seed": 4})
    assert t5.generate(text, stop=whole[2:4], **how) == whole[: whole.index(whole[2:4])]


def test_tasks_stand_in_front_of_texts(t5):
    assert {task.name: (task.prefix, task.max_tokens) for task in t5.tasks} == dict(
        summarization=("sum: ", 5), translation_en_to_de=("to german: ", None)
    )
    assert t5.summary == stof.Seq2SeqTask("summarization", "sum: ", 5)
    assert t5.translation("en", "fr").prefix == "translate English to French: "
    texts = ["a house", "b"]
    of_summary = [r.text for r in t5.generate_all(["sum: " + t for t in texts], max_tokens=5)]
    assert t5.summarise(texts) == of_summary
    assert t5.summarise(texts[0], num_threads=1) == t5.generate("sum: a house", max_tokens=5)
    assert t5.summarise(texts[0], max_tokens=2) == t5.generate("sum: a house", max_tokens=2)
    translated = t5.translate(texts[1], source="English", target="German", max_tokens=9)
    assert translated == t5.generate("to german: b", max_tokens=9)
    assert t5.translate([], source="en", target="ro") == []
    with pytest.raises(stof.InvalidArgument, match='target: expected .*"nl"'):
        t5.translate("a", source="en", target="nl")
    with pytest.raises(stof.InvalidArgument, match=r"texts\[1\]: expected text, got 3"):
        t5.summarise(["a", 3])


def test_what_it_is(t5):
    assert (t5.vocab_size, t5.hidden_size, t5.num_heads) == (40, 16, 2)
    assert (t5.num_layers, t5.num_decoder_layers) == (2, 2)
    assert type(t5) is stof.Seq2SeqGenerator and t5.place == "CPU, float32"
    assert "encoder of 2 layers" in t5.description and "Seq2SeqGenerator" in repr(t5)
    with pytest.raises(stof.NoSuchMethod, match="^embed: expected .*got a stof.Seq2SeqGenerator"):
        t5.embed
    with pytest.raises(stof.Unsupported, match="expected a stof.TextGenerator.* got a stof.Seq2Seq"):
        stof.TextGenerator.load(t5.path)
    with stof.load(t5.path) as closing:
        pass
    for call in (lambda: closing.generate("a"), lambda: closing.summary, lambda: closing.encode([1])):
        with pytest.raises(stof.InvalidArgument, match="closed"):
            call()
