"""Whatever is given for an argument, stof's own error says what is wrong with it, never Python's."""

import inspect

import tempfile
from pathlib import Path

import checkpoints
import numpy as np
import pytest
import stof
from stof import masks
from stof.problem import Problem

WRONG = (
    None, True, 0, 3, -1, 2**70, 1.5, float("nan"), "", "x", b"", [], [[]], ["x"], [None], {},
    (1, 2, 3), np.zeros(3), np.int64(2), object(), lambda: 0,
)  # fmt: skip
SHAPE = dict(batch=1, num_heads=2, seq_q=4, head_dim=8, dtype="float32")
HALF = dict(batch=1, num_heads=2, head_dim=64, dtype="float16")
X, ROWS = np.zeros((1, 2, 4, 8), "f4"), np.zeros((4, 2, 8), "f4")
CAUSAL = masks.causal()


def model(make):
    with tempfile.TemporaryDirectory() as folder:
        return stof.load(make(Path(folder)))


BERT, LLAMA, VIT, T5 = map(
    model,
    (checkpoints.encoder, checkpoints.generator, checkpoints.classifier, checkpoints.seq2seq),
)
FEW = dict(prompt="a", max_tokens=2)

#: What is called, and arguments that it takes; each in turn is given every wrong kind.
CALLS = {
    "plan": (stof.plan, dict(mask="causal", **SHAPE)),
    "plan on a GPU": (stof.plan, dict(mask="causal", device="cuda", **HALF, seq_q=4)),
    "varlen_plan": (
        stof.varlen_plan,
        dict(mask="causal", cu_seqlens_q=[0, 4], num_heads=2, head_dim=8, dtype="float32"),
    ),
    "attention": (stof.attention, dict(q=X, k=X, v=X)),
    "varlen_attention": (stof.varlen_attention, dict(q=ROWS, k=ROWS, v=ROWS, cu_seqlens_q=[0, 4])),
    "Plan.run": (stof.plan(CAUSAL, **SHAPE).run, dict(q=X, k=X, v=X)),
    "explain": (stof.explain, dict(mask="causal", **HALF, seq_q=4)),
    "DecodePlan": (stof.DecodePlan, dict(max_seq_kv=64, **HALF)),
    "BlockListPlan": (stof.BlockListPlan, dict(seq_q=64, **HALF)),
    "Mask.bind": (CAUSAL.bind, dict(seq_q=4)),
    "Mask.visible": (CAUSAL.visible, dict(q=1, k=1)),
    "Mask.keys": (CAUSAL.keys, dict(q=1, seq_kv=4)),
    "Mask.to_dense": (CAUSAL.to_dense, dict(seq_q=4)),
    "Mask.stats": (CAUSAL.stats, dict(seq_q=4)),
    "Mask.draw": (CAUSAL.draw, dict(seq_q=4)),
    "Mask.png": (CAUSAL.png, dict(seq_q=4)),
    "masks.parse": (masks.parse, dict(text="causal")),
    "masks.load": (masks.load, dict(path="no such file")),
    "masks.from_json": (masks.from_json, dict(text='{"op": "all"}')),
    "masks.dense": (masks.dense, dict(visible=np.ones((3, 3), "?"))),
    "masks.global_tokens": (masks.global_tokens, dict(tokens=[1])),
    "masks.document": (masks.document, dict(lengths=[1])),
    "masks.neighbourhood": (masks.neighbourhood, dict(grid=[4], kernel=[3])),
    "masks.tree": (masks.tree, dict(parents=[-1])),
    "masks.intervals": (masks.intervals, dict(begin=[[1]], end=[[2]])),
    "masks.blocks": (masks.blocks, dict(heads=[[[0]]], block_q=2, block_kv=2)),
    "masks.random_blocks": (masks.random_blocks, dict(block=2, rate=0.5)),
    "masks.random": (masks.random, dict(rate=0.5)),
    "masks.shifted": (masks.shifted, dict(mask=CAUSAL)),
    "masks.per_head": (masks.per_head, dict(masks=[CAUSAL])),
    "masks.per_batch": (masks.per_batch, dict(masks=[CAUSAL])),
    "masks.batch_entry": (masks.batch_entry, dict(mask=CAUSAL, entry=0)),
    "masks.window": (masks.window, dict(left=1, right=1)),
    "masks.bigbird": (masks.bigbird, {}),
    "load": (stof.load, dict(path="no such folder")),
    "embed": (BERT.embed, dict(texts="a")),
    "encode_tokens": (BERT.encode_tokens, dict(texts="a")),
    "fill_mask": (BERT.fill_mask, dict(texts="no mask token")),
    "tokenize": (BERT.tokenize, dict(text="a")),
    "generate": (LLAMA.generate, FEW),
    "generate_all": (LLAMA.generate_all, dict(prompts=["a"], max_tokens=2)),
    "logits": (LLAMA.logits, dict(ids=[1])),
    "detokenize": (LLAMA.detokenize, dict(ids=[1])),
    "chat_prompt": (LLAMA.chat_prompt, dict(messages="a")),
    "generate of T5": (T5.generate, dict(text="a", max_tokens=2)),
    "generate_all of T5": (T5.generate_all, dict(texts=["a"], max_tokens=2)),
    "translate": (T5.translate, dict(texts="a", source="en", target="de", max_tokens=2)),
    "summarise": (T5.summarise, dict(texts="a", max_tokens=2)),
    "encode": (T5.encode, dict(ids=[1])),
    "logits of T5": (T5.logits, dict(ids=[1])),
    "classify": (VIT.classify, dict(images=np.zeros((9, 9, 3), "u1"))),
    "pixels": (VIT.pixels, dict(image=np.zeros((9, 9, 3), "u1"))),
}


def names_of(function, given):
    keywords = inspect.signature(function).parameters.values()
    own = [p.name for p in keywords if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
    if function is stof.explain:
        own += [n for n in inspect.signature(stof.plan).parameters if n not in ("mask", "device")]
    return own


@pytest.mark.parametrize("call", CALLS)
def test_wrong_kinds_of_arguments_are_refused_in_stof_s_words(call):
    function, given = CALLS[call]
    for name in names_of(function, given):
        for wrong in WRONG:
            if name == "progress" and callable(wrong):
                continue  # what it raises is the caller's own
            try:
                function(**{**given, name: wrong})
            except stof.InternalError as error:
                raise AssertionError(f"{name}={wrong!r}") from error
            except stof.StofError as error:
                assert str(error), (name, wrong)
            except Exception as error:  # not one of stof's
                raise AssertionError(f"{name}={wrong!r}") from error


@pytest.mark.parametrize(
    "make",
    (
        lambda wrong: stof.PositionBias(num_buckets=wrong),
        lambda wrong: stof.PositionBias(8, max_distance=wrong),
        lambda wrong: stof.PositionBias(8, bidirectional=wrong),
        lambda wrong: stof.PositionBias(8, table=wrong),
    ),
)
def test_wrong_kinds_in_a_position_bias(make):
    for wrong in WRONG:
        try:
            stof.plan(CAUSAL, **SHAPE, position_bias=make(wrong))
        except stof.StofError as error:
            assert "position_bias" in str(error), wrong


@pytest.mark.parametrize("tables", (3, None, ["x"], {"t": 3}, {3: np.zeros(3, "f4")}))
def test_wrong_kinds_of_score_tables(tables):
    with pytest.raises(stof.InvalidArgument, match="score_mod: "):
        stof.plan(CAUSAL, **SHAPE, score_mod=stof.ScoreMod("score + t[h]", tables))


@pytest.mark.parametrize(
    "call, message",
    (
        (lambda: stof.plan("causal", **SHAPE, kernel=3), "kernel: expected None .*got 3"),
        (
            lambda: stof.plan("causal", **HALF, seq_q=4, device="cuda", kernel=3),
            "kernel: expected text, got 3",
        ),
        (
            lambda: stof.plan("causal", **SHAPE, alignment=[]),
            r'alignment: expected "top_left" or "bottom_right", got \[\]',
        ),
        (
            lambda: stof.PositionBias(8, bidirectional="no"),
            "position_bias.bidirectional: expected True or False, got 'no'",
        ),
        (lambda: masks.random("0.5"), "rate: expected a number, got '0.5'"),
        (lambda: masks.random_blocks(2, rate="x"), "rate: expected a number, got 'x'"),
        (lambda: CAUSAL.png(4, title=3), "title: expected text, got 3"),
        (lambda: CAUSAL.png(4, title="a\0b"), "title: expected text without NUL"),
        (lambda: CAUSAL.to_dense(-1), "seq_q: expected at least 0, got -1"),
        (lambda: CAUSAL.to_dense(4, batch=-1), "batch: expected at least 0, got -1"),
        (
            lambda: stof.BlockListPlan(**HALF, seq_q=64, expected_share="x"),
            "expected_share: expected a number, got 'x'",
        ),
        (lambda: masks.per_head(3), "masks: expected a list of stof.Mask, got 3"),
        (lambda: masks.load(3), "path: expected a path, got 3"),
        (lambda: stof.plan("causal", **SHAPE).run(None, X, X), "q: expected an array, got None"),
    ),
)
def test_the_argument_is_named_with_what_was_expected_and_got(call, message):
    with pytest.raises(stof.InvalidArgument, match=message):
        call()


def test_lengths_may_be_numpy_s_numbers():
    ends = [np.int64(0), np.int64(4)]
    assert (stof.varlen_attention(ROWS, ROWS, ROWS, ends) == 0).all()


def test_booleans_beyond_memory_are_refused():
    with pytest.raises(stof.OutOfMemory, match="expected booleans .* that fit in memory"):
        CAUSAL.to_dense(2**40, 2**40)


def test_options_have_the_same_defaults_everywhere():
    takers = (
        stof.plan,
        stof.varlen_plan,
        stof.attention,
        stof.varlen_attention,
        Problem,
        Problem.make,
    )
    for name in ("scale", "softcap", "alignment", "return_lse", "position_bias", "score_mod"):
        given = [*takers, stof.DecodePlan, stof.BlockListPlan]
        signatures = (inspect.signature(taker).parameters for taker in given)
        defaults = {taken[name].default for taken in signatures if name in taken}
        assert defaults == {getattr(Problem, name)}, name
