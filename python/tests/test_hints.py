"""What is refused with the name of what serves instead, and warnings about layouts."""

import warnings

import numpy as np
import pytest

import stof
from stof import layout, masks
from stof.spoken import spoken

Q = np.ones((2, 3, 8, 16), np.float32)


@pytest.mark.parametrize(
    "text, message",
    [
        ("torch.sin(score)", r"^score_mod, column 6: unexpected character"),
        ("erf(score)", r'^score_mod, column 1: unknown name "erf"; did you mean "exp"'),
        ("score + q_idx", r'^score_mod, column 9: unknown name "q_idx"'),
        ("score + t[k]", r'^score_mod, column 9: unknown name "t"'),
    ],
)
def test_score_mods_are_read_when_made(text, message):
    with pytest.raises(stof.InvalidArgument, match=message):
        stof.ScoreMod(text)


def test_reads_past_a_table_of_a_score():
    """As docs/masks.md says: 0 past the end, and from the end below 0."""
    table = np.array([1, 2, 3], np.float32)
    mod = stof.ScoreMod("table[q - 1]", {"table": table})
    _, lse = stof.attention(Q, Q[:, :, :1], Q[:, :, :1], score_mod=mod, return_lse=True)
    assert lse[0, 0].tolist() == [3, 1, 2, 3, 0, 0, 0, 0]


@pytest.mark.parametrize("ids", [[0, 0, 0, 1, 1, 2], np.array([0, 1, 1, 2, 3])])
def test_numbers_of_documents_are_no_lengths(ids):
    with pytest.raises(stof.InvalidArgument, match=r"lengths: .*numpy.bincount.*predicate"):
        masks.document(ids)
    assert masks.document(np.bincount(ids)) == masks.document(np.bincount(list(ids)))


@pytest.mark.parametrize(
    "lengths", [[0, 3, 3], [0, 0, 0, 0], [2, 1, 2, 3], [1, 1, 2, 2], [0, 1], []]
)
def test_lengths_of_documents(lengths):
    masks.document(lengths)


@pytest.mark.parametrize(
    "name", ["casual", "sliding_window", "padding", "global", "nothing_like_it"]
)
def test_names_of_masks(name):
    meant = {"casual": "did you mean causal", "sliding_window": "sliding", "padding": "key_lengths"}
    with pytest.raises(AttributeError, match=f"{name}'.*{meant.get(name, '')}"):
        getattr(masks, name)


def test_arguments_of_masks():
    with pytest.raises(stof.InvalidArgument, match=r"^rows: .*global_tokens"):
        masks.global_([0, 5])
    with pytest.raises(stof.InvalidArgument, match="^random_blocks: expected either count"):
        masks.random_blocks(64)


def test_masks_and_what_is_none():
    for other, how in (("window(3, 0)", "parse"), (np.ones((3, 3), bool), "dense")):
        for join in (
            lambda: masks.causal() & other,
            lambda: other & masks.causal(),
            lambda: masks.causal() | other,
            lambda: other | masks.causal(),
        ):
            with pytest.raises(
                TypeError, match=f"got {type(other).__name__}; make stof.masks.{how}"
            ):
                join()
    with pytest.raises(TypeError, match="unsupported operand"):
        masks.causal() & 3


def test_arguments_of_others():
    with pytest.raises(TypeError, match=r"out=; write .*run\(q, k, v, out=out\)"):
        stof.attention(Q, Q, Q, out=Q)
    with pytest.raises(TypeError, match="dropout_p=; leave it out"):
        stof.attention(Q, Q, Q, dropout_p=0.0)
    rows = Q[0].swapaxes(0, 1)
    with pytest.raises(TypeError, match="max_seqlen_q=; leave it out"):
        stof.varlen_attention(rows, rows, rows, [0, 8], max_seqlen_q=8)
    shapes = dict(batch=1, num_heads=1, seq_q=8, head_dim=16, dtype="float32")
    with pytest.raises(TypeError, match=r"stof.plan\(\) has no argument heads=; write num_heads="):
        stof.plan("causal", **shapes, heads=3)
    with pytest.raises(
        TypeError, match=r"stof.varlen_plan\(\) has no argument max_seqlen_k=; leave"
    ):
        stof.varlen_plan(None, [0, 8], num_heads=1, head_dim=16, dtype="float32", max_seqlen_k=8)


def raising():
    raise TypeError("inside")


def test_calls_that_python_itself_would_refuse():
    shapes = dict(batch=1, seq_q=8, head_dim=16, dtype="float32")
    for call, message in (
        (lambda: masks.window(256), "masks.window: expected left and right, got no right"),
        (lambda: masks.window(), "masks.window: expected left and right, got no left and right"),
        (lambda: masks.window(1, 2, 3), "masks.window: expected at most left and right, got 3"),
        (lambda: masks.window(1, left=2), "masks.window: expected left once, got it twice"),
        (lambda: masks.sliding(window=3), r"masks.sliding\(\) has no argument window=; it has w="),
        (lambda: masks.none(3), "masks.none: expected no arguments, got 1"),
        (lambda: masks.parse(), "masks.parse: expected text, got no text"),
        (lambda: stof.plan("causal", **shapes, heads=3), r"plan\(\) has no argument heads=; write num_h"),
        (lambda: stof.plan("causal", **shapes), "plan: expected mask, batch=, .*, got no num_heads="),
        (lambda: stof.varlen_plan("causal"), "varlen_plan: expected .*, got no cu_seqlens_q, num_heads="),
    ):
        with pytest.raises(TypeError, match="^stof." + message):
            call()
    with pytest.raises(TypeError, match="^inside$"):  # what is raised inside stays
        spoken("masks.x")(raising)()


HINT = r"if q, k and v are \[batch, seq, heads, head_dim\], pass q.transpose"


def test_layouts_in_errors():
    q = np.ones((1, 32, 2, 16), np.float32)
    with pytest.raises(stof.InvalidArgument, match="k: expected 1 heads.*" + HINT):
        stof.attention(q[:, :1], q, q)  # a step of decoding
    with pytest.raises(stof.InvalidArgument, match="k: expected a number of heads.*" + HINT):
        stof.attention(q[:, :1], q, q, enable_gqa=True)
    with pytest.raises(stof.InvalidArgument, match="mask: expected shape.*" + HINT):
        stof.attention(q, q, q, np.ones((32, 32), bool))
    with pytest.raises(stof.InvalidArgument) as caught:
        stof.attention(Q, Q[:, :1], Q[:, :1])
    assert "transpose" not in str(caught.value)


def test_many_heads_are_warned_about_once(monkeypatch):
    monkeypatch.setattr(layout, "_warned", False)
    q = np.ones((1, 132, 2, 16), np.float32)
    with pytest.warns(UserWarning, match="got 132 heads for 2 queries.*" + HINT) as caught:
        stof.attention(q, q, q)
    assert len(caught) == 1 and caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        stof.attention(q[:, :131], q[:, :131], q[:, :131])
        monkeypatch.setattr(layout, "_warned", False)
        heads = np.ones((1, 128, 1, 16), np.float32)
        stof.attention(heads, heads, heads)  # the first step of a large model
        stof.attention(
            q[:, :, :1],
            np.ones((1, 132, 40, 16), np.float32),
            np.ones((1, 132, 40, 16), np.float32),
        )


def test_names_shown():
    assert dir(stof) == sorted(stof.__all__)


def test_masks_and_plans_are_not_made_by_their_classes():
    for given in (("causal",), (), (masks.causal(),), (7,)):
        with pytest.raises(stof.InvalidArgument, match=r"stof\.Mask: .*masks\.parse"):
            stof.Mask(*given)
    with pytest.raises(stof.InvalidArgument, match=r"stof\.Plan: .*stof\.plan"):
        stof.Plan("causal", 1, 2, 3)


def test_cumulative_lengths_are_no_lengths():
    with pytest.warns(UserWarning, match=r"lengths: .*numpy\.diff\(cu_seqlens\)"):
        masks.document([0, 10, 64])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert masks.document([10, 54]) == masks.document(np.diff([0, 10, 64]))
    rows = Q[0, 0]
    with pytest.raises(stof.InvalidArgument, match=r"cu_seqlens_q: .*numpy\.cumsum"):
        stof.varlen_attention(rows[:, None], rows[:, None], rows[:, None], [3, 5])


def test_packed_and_other_layouts_name_each_others_function():
    with pytest.raises(stof.InvalidArgument, match=r"^q: .*varlen_attention"):
        stof.attention(Q[0], Q[0], Q[0])
    with pytest.raises(stof.InvalidArgument, match=r"^q: .*stof\.attention"):
        stof.varlen_attention(Q, Q, Q, [0, 2])
    with pytest.raises(stof.InvalidArgument, match=r"^cu_seqlens_kv: .*a mask; write mask="):
        stof.varlen_attention(Q[0], Q[0], Q[0], [0, 3], "causal")


def test_names_of_other_libraries():
    with pytest.raises(AttributeError, match=r"stof\.masks\.causal"):
        stof.causal
    with pytest.raises(AttributeError, match=r"use stof\.attention"):
        stof.scaled_dot_product_attention
    with pytest.raises(TypeError, match="write cu_seqlens_kv="):
        stof.varlen_attention(Q[0], Q[0], Q[0], [0, 3], cu_seqlens_k=[0, 3])


def test_a_table_that_is_not_given_is_named():
    with pytest.raises(stof.InvalidArgument, match=r'unknown name "doc"; a table of that name'):
        masks.predicate("doc[q] == doc[k]")
