"""What calls refuse, and in which words: argument, expected, got, what to do."""

import re
import subprocess
import sys

import numpy as np
import oracle
import pytest
import stof
from stof import errors, masks
from stof._native.call import in_python

SHAPE = dict(batch=1, num_heads=2, seq_q=4, head_dim=8, dtype="float32")
Q, K, V = oracle.arrays(1, 2, 4, 6, 5, 8)


@pytest.mark.parametrize(
    "arguments, options, message",
    [
        ((Q, K[:, :2], V[:, :2]), {}, r"k: expected 4 heads like q, got 2 .*pass enable_gqa=True"),
        (
            (Q, K[:, :3], V[:, :3]),
            dict(enable_gqa=True),
            "k: expected a number of heads that divides",
        ),
        ((Q, K, V[:, :2]), {}, r"v: expected shape \[2, 4, 5, 8\], got \[2, 2, 5, 8\]"),
        ((Q, K[:1], V), {}, r"k: expected shape \[2, 4, 5, 8\], got \[1, 4, 5, 8\]"),
        ((Q, K[..., :4], V), {}, r"k: expected shape \[2, 4, 5, 8\], got \[2, 4, 5, 4\]"),
        ((Q[0], K, V), {}, r"q: expected \[batch, heads, seq, head_dim\], got shape \[4, 6, 8\]"),
        (
            (Q.astype("f8"), K, V),
            {},
            "q: expected dtype float32, float16, bfloat16, got float64; convert",
        ),
        ((Q, K.astype("f2"), V), {}, "k: expected dtype float32 like q, got float16; convert it"),
        ((Q.astype(">f4"), K, V), {}, "byte order"),
        ((Q.astype("c8"), K, V), {}, "expected.*got complex64"),
        ((Q, K, None), {}, "v: expected .*got NoneType"),
        ((Q, K.tolist(), V), {}, "k: expected .*got list"),
        ((Q.tolist(), K, V), {}, "q: expected a NumPy array, a torch tensor .*got list"),
        (
            (Q, K, V, 3),
            {},
            "mask: expected a stof.Mask, its text, a boolean array or None, got int",
        ),
        ((Q, K, V, np.zeros((6, 5))), {}, "mask: expected booleans .*got float64.*bias="),
        (
            (Q, K, V, np.zeros((6, 5), "i1")),
            {},
            "mask: expected booleans .*got int8.*if this is a pad",
        ),
        ((Q, K, V, np.zeros((2, 1, 6, 5), "i1")), {}, "mask: expected booleans .*pass mask != 0"),
        *(
            ((Q, K, V, np.ones(shape, "?")), {}, rf"mask: expected shape \[6, 5\] or .*{hint}")
            for shape, hint in (
                ((5, 5), r"\[2\|1, 4\|1, 6\|1, 5\], got \[5, 5\]$"),
                ((6, 1), r"got \[6, 1\]$"),
                ((3, 1, 6, 5), r"got \[3, 1, 6, 5\]$"),
                ((2, 6, 5), r"got \[2, 6, 5\]; give it a heads dimension: mask\[:, None\]"),
                ((2, 5), r"got \[2, 5\]; if this is a padding mask"),
                ((5,), r"got \[5\]$"),
            )
        ),
        (
            (Q, K, V, masks.dense(np.ones((5, 5), "?"))),
            {},
            r"mask: dense: expected an array of .*, 5\] for scores .*got \[1, 1, 5, 5\]",
        ),
        (
            (Q, K, V),
            dict(bias=np.zeros((6, 5), "?")),
            "bias: expected dtype float32, .*got bool; a boolean mask .* goes to mask=",
        ),
        ((Q, K, V), dict(sink=np.zeros(4, "i4")), "sink: expected dtype .*got int32; convert it"),
        (
            tuple(np.zeros((1, 1, 2, 513), "f4") for _ in range(3)),
            {},
            "head_dim, the last extent of q and k: expected 1 to 512, got 513",
        ),
        (
            (Q, K, np.zeros((2, 4, 5, 600), "f4")),
            {},
            "head_dim_v, the last extent of v: expected 1 to 512, got 600",
        ),
        (
            (Q, K, V),
            dict(alibi=np.zeros(3, "f4")),
            r"alibi: expected shape \[4\], got \[3\]",
        ),
        ((Q, K, V), dict(sink=[0.0] * 4), "sink: expected an array of NumPy like q, got list"),
        (
            (Q, K, V),
            dict(bias=np.zeros((6, 6), "f4")),
            r"bias: expected .*\[2, 4, 6, 5\], got \[6, 6\]",
        ),
        (
            (Q, K, V),
            dict(position_bias=np.zeros((8, 4))),
            "position_bias: expected a stof.PositionB",
        ),
        (
            (Q, K, V),
            dict(position_bias=stof.PositionBias(8)),
            "position_bias.table: expected float32",
        ),
        ((Q, K, V), dict(score_mod=lambda s, b, h, q, k: s), "score_mod: expected a stof.ScoreMod"),
        ((Q, K, V), dict(scale=-1.0), "scale: expected a number of at least 0"),
        ((Q, K, V), dict(alignment="centre"), "alignment: expected"),
    ],
)
def test_attention_refuses(arguments, options, message):
    with pytest.raises(stof.InvalidArgument, match=re.compile(message, re.S)):
        stof.attention(*arguments, **options)


def test_order_of_dimensions_is_hinted_at():
    plan = stof.plan(None, batch=2, num_heads=4, seq_q=6, seq_kv=5, head_dim=8, dtype="float32")
    with pytest.raises(stof.InvalidArgument, match=r"looks like \[batch, seq, heads, head_dim\]"):
        plan.run(Q.swapaxes(1, 2), K, V)
    with pytest.raises(stof.InvalidArgument, match="batch or head dimension"):
        plan.run(Q[0], K, V)
    with pytest.raises(stof.InvalidArgument, match="stream: expected None .*the CPU"):
        plan.run(Q, K, V, stream=1)
    with pytest.raises(stof.InvalidArgument, match="lse: expected none .*return_lse"):
        plan.run(Q, K, V, lse=np.zeros((2, 4, 6), np.float32))
    with pytest.raises(stof.InvalidArgument, match="score_tables: expected 0"):
        plan.run(Q, K, V, score_tables=(Q,))
    with pytest.raises(stof.InvalidArgument, match="num_threads"):
        plan.run(Q, K, V, num_threads=-1)


def test_nothing_is_written_where_a_call_is_refused():
    plan = stof.plan(None, batch=2, num_heads=4, seq_q=6, seq_kv=5, head_dim=8, dtype="float32")
    out = np.full((2, 4, 6, 8), 7, np.float32)
    with pytest.raises(stof.InvalidArgument):
        plan.run(Q, K, V[:, :, :4], out=out)
    assert (out == 7).all()


def test_every_status_has_a_class():
    expected = {
        1: ("InvalidArgument", ValueError),
        2: ("Unsupported", NotImplementedError),
        3: ("NotFound", LookupError),
        4: ("Corrupt", ValueError),
        5: ("OutOfMemory", MemoryError),
        6: ("IoError", OSError),
        7: ("CudaError", RuntimeError),
        8: ("JitError", RuntimeError),
        9: ("InternalError", RuntimeError),
    }
    assert set(errors.BY_STATUS) == set(expected)
    for status, (name, base) in expected.items():
        kind = errors.BY_STATUS[status]
        assert kind.__name__ == name and issubclass(kind, base)
        assert issubclass(kind, stof.StofError) and getattr(stof, name) is kind


def test_statuses_of_the_library():
    with pytest.raises(stof.Corrupt):
        stof.masks.from_json("{")
    with pytest.raises(stof.NotFound, match="nowhere.npy"):
        stof.masks.parse('dense("nowhere.npy")', base_dir=".")


@pytest.mark.parametrize(
    "read",
    [
        masks.parse,
        masks.from_json,
        masks.predicate,
        lambda text: stof.plan(
            "causal", batch=1, num_heads=1, seq_q=4, head_dim=8, dtype="float32", score_mod=text
        ),
    ],
)
@pytest.mark.parametrize("text", ["causal\0 & window(1, 0)", "caus\ud800al"])
def test_text_that_c_would_cut_off_or_cannot_hold_is_refused(read, text):
    with pytest.raises(stof.InvalidArgument, match="expected text"):
        read(text)


def test_arrays_without_elements_give_what_empty_rows_give():
    some, none = np.ones((1, 1, 4, 4), np.float32), np.zeros((1, 1, 0, 4), np.float32)
    out, lse = stof.attention(some, none, none, return_lse=True)
    assert np.array_equal(out, np.zeros_like(some)) and np.all(np.isneginf(lse))
    assert stof.attention(none, some, some).shape == none.shape
    rows = np.zeros((0, 1, 4), np.float32)
    assert stof.varlen_attention(rows, rows, rows, [0, 0]).shape == rows.shape


@pytest.mark.parametrize(
    "call, name",
    [
        (lambda q: stof.plan("causal", **{**SHAPE, "batch": 2**64 + 1}), "batch"),
        (lambda q: stof.plan("causal", **{**SHAPE, "seq_q": 2**63}), "seq_q"),
        (lambda q: stof.plan(None, **SHAPE, position_bias=stof.PositionBias(8, 2**64 + 9)),
         "position_bias.max_distance"),
        (lambda q: stof.varlen_attention(q[0], q[0], q[0], [0, 2**64 + 2]), r"cu_seqlens_q\[1\]"),
        (lambda q: masks.causal(2**64), "offset"),
        (lambda q: masks.document([3, 2**64 + 3]), r"lengths\[1\]"),
        (lambda q: masks.sliding(2**64 + 1), "w"),
        (lambda q: masks.causal().visible(2**64, 0), "q"),
        (lambda q: masks.causal().keys(3, 2**64 + 4), "seq_kv"),
        (lambda q: masks.causal().bind(2**64 + 4), "seq_q"),
        (lambda q: masks.causal().stats(4, batch=2**64 + 1), "batch"),
        (lambda q: masks.causal().draw(4, head=2**64), "head"),
        (lambda q: masks.causal().draw(4, max_cells=2**64 + 8), "max_cells"),
        (lambda q: masks.causal().png(4, max_pixels=2**64 + 8), "max_pixels"),
        (lambda q: stof.explain("causal", **SHAPE, num_sms=2**32 + 1), "num_sms"),
        (lambda q: stof.plan("causal", **SHAPE, device=f"cuda:{2**32}"), "device"),
        (lambda q: stof.plan("causal", **SHAPE).run(q, q, q, num_threads=2**32 + 1), "num_threads"),
    ],
)  # fmt: skip
def test_integers_that_c_would_wrap_are_refused(call, name):
    with pytest.raises(
        stof.InvalidArgument, match=f"^{name}: expected a whole number of (64|32) bits"
    ):
        call(np.ones((1, 2, 4, 8), np.float32))


@pytest.mark.parametrize("softcap", [1e-39, 1e-300, 1e39])
def test_softcaps_that_float32_cannot_hold_are_refused(softcap):
    with pytest.raises(stof.InvalidArgument, match="softcap: expected .*float32"):
        stof.plan("causal", **SHAPE, softcap=softcap)


def test_masked_arrays_are_refused_by_name():
    q = np.ones((1, 2, 4, 8), np.float32)
    hidden = np.ma.masked_array(q, mask=np.zeros_like(q, bool))
    stof.attention(q, q, q)
    plan = stof.plan(None, **SHAPE)
    plan.run(q, q, q)
    for call in (stof.attention, plan.run):
        with pytest.raises(stof.InvalidArgument, match="k: expected a plain .*MaskedArray"):
            call(q, hidden, q)
    with pytest.raises(stof.InvalidArgument, match="mask: expected a plain .*MaskedArray"):
        stof.attention(q, q, q, np.ma.masked_array(np.ones((4, 4), bool)))
    with pytest.raises(stof.InvalidArgument, match="bias: expected a plain .*MaskedArray"):
        stof.attention(q, q, q, bias=np.ma.masked_array(np.ones((4, 4), np.float32)))


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: masks.random_blocks(8, count=2).visible(0, 0), r"call mask\.bind\(seq_q"),
        (lambda: stof.plan("causal", **{**SHAPE, "head_dim": 9999}), "^head_dim, the last"),
        (lambda: stof.plan("causal", **{**SHAPE, "num_heads": 2**40}), "num_heads"),
        (
            lambda: stof.plan("causal", **SHAPE, position_bias=stof.PositionBias(1)),
            r"position_bias\.num_buckets",
        ),
    ],
)
def test_messages_have_pythons_names(call, message):
    with pytest.raises(stof.InvalidArgument, match=message) as caught:
        call()
    assert not re.search(r"stof_|STOF_|head_dim_qk|num_heads_q|position_buckets", str(caught.value))


def test_other_libraries_arguments_are_answered_with_the_name_here():
    for given, hint in {
        "attn_mask": "mask= where it is boolean",
        "is_causal": 'mask="causal"',
        "softmax_scale": "scale=",
        "window_size": r"stof\.masks\.window",
        "dropout_p": "for inference",
    }.items():
        with pytest.raises(
            TypeError, match=rf"stof\.attention\(\) has no argument {given}=; .*{hint}"
        ):
            stof.attention(Q, K, V, **{given: None})
    with pytest.raises(TypeError, match=r"stof\.varlen_attention\(\) has no argument causal="):
        stof.varlen_attention(Q[0], K[0], V[0], [0, 4], causal=True)
    with pytest.raises(TypeError, match="has no argument colour=$"):
        stof.attention(Q, K, V, colour=3)


def test_padding_masks_of_integers_are_answered_with_what_to_pass():
    padding = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]])
    with pytest.raises(
        stof.InvalidArgument, match=r"padding mask .*\(attention_mask != 0\)\[:, None"
    ):
        stof.attention(Q, K, V, padding)
    seen = (padding != 0)[:, None, None, :]
    np.testing.assert_array_equal(
        stof.attention(Q, K, V, seen)[:1], stof.attention(Q[:1], K[:1], V[:1], seen[0, 0])
    )


def test_arrays_of_two_libraries_are_both_named():
    class Foreign:
        shape, dtype = K.shape, K.dtype

    with pytest.raises(
        stof.InvalidArgument, match="k, v: expected arrays of NumPy like q, got Foreign"
    ):
        stof.attention(Q, Foreign(), Foreign())


def test_no_plan_is_spoken_of_where_none_was_made():
    for arguments in ((Q, K[:, :, :3], V), (Q, K[..., :4], V), (Q, K, V[:1])):
        with pytest.raises(stof.InvalidArgument, match="expected shape") as caught:
            stof.attention(*arguments)
        assert "plan" not in str(caught.value)


def test_explain_says_what_is_missing():
    with pytest.raises(stof.InvalidArgument, match="explain: expected head_dim=, dtype= as plan"):
        stof.explain("causal", batch=1, num_heads=2, seq_q=4)
    with pytest.raises(stof.InvalidArgument, match="explain: expected arguments of plan.*device="):
        stof.explain("causal", **SHAPE, device="cuda")


def test_names_of_the_masks_are_all_that_is_shown():
    shown = dir(masks)
    assert shown == masks.__all__ and {"causal", "load", "parse"} <= set(shown)
    assert not {"json", "ctypes", "adopt", "whole", "annotations"} & set(shown)
    functions = {name for name in vars(masks) if callable(getattr(masks, name))}
    own = {n for n in functions if getattr(masks, n).__module__ == "stof.masks"}
    assert {name for name in own if not name.startswith("_")} <= set(shown)


def test_torch_modules_say_that_torch_is_missing():
    code = """
import sys
for name in ("torch", "transformers"):
    sys.modules[name] = None
import stof
for name in ("stof.transformers", "stof.compat.flex"):
    try:
        __import__(name)
    except ImportError as error:
        assert str(error).startswith(name + ": expected torch"), error
    else:
        raise AssertionError(name)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_known_calls_refuse_what_first_calls_do():
    """1 == True, so the number would find the plan of the flag."""
    rows, table = Q[0].swapaxes(0, 1), np.zeros((4, 4), np.float32)

    def buckets(*given):
        return stof.PositionBias(*given, table=table)

    for good, bad in (
        (dict(enable_gqa=True), dict(enable_gqa=1)),
        (dict(enable_gqa=False), dict(enable_gqa=0)),
        (dict(return_lse=True), dict(return_lse=1)),
        (dict(return_lse=False), dict(return_lse=0)),
        (dict(position_bias=buckets(4)), dict(position_bias=buckets(4.0))),
        (dict(position_bias=buckets(4, 128)), dict(position_bias=buckets(4, 128.0))),
    ):
        for call in (
            lambda **options: stof.attention(Q, Q, Q, "causal", **options),
            lambda **options: stof.varlen_attention(rows, rows, rows, [0, 6], **options),
        ):
            for _ in range(2):
                stof.cache_clear()
                with pytest.raises(stof.InvalidArgument) as first:
                    call(**bad)
                for _ in range(2):
                    call(**good)
                with pytest.raises(stof.InvalidArgument, match=re.escape(str(first.value))):
                    call(**bad)


@pytest.mark.parametrize(
    "call, message",
    [
        (
            lambda: stof.attention(Q, K, V, masks.causal),
            r"got function; call it: stof\.masks\.causal",
        ),
        (lambda: stof.attention(Q, K, V, lambda b, h, q, k: q >= k), "stof.compat.flex takes"),
        (lambda: masks.predicate(lambda b, h, q, k: q >= k), "stof.compat.flex takes"),
        (lambda: stof.attention(Q, K, V, np.ones((2, 5), bool)), r"pass mask\[:, None, None, :\]"),
        (lambda: stof.attention(Q[0], K[0], V[0]), r"give it a batch dimension: q\[None\]"),
        (lambda: stof.attention(Q, K, V, enable_gqa="yes"), "enable_gqa: expected True or False"),
        (
            lambda: stof.attention(Q, K, V, return_lse=1),
            "return_lse: expected True or False, got 1",
        ),
        (
            lambda: stof.varlen_attention(Q[0], Q[0], Q[0], [0, 9]),
            "cu_seqlens_q: expected it to end with 4, the rows of q, got 9",
        ),
    ],
)
def test_beginners_are_told_what_to_write(call, message):
    with pytest.raises(stof.InvalidArgument, match=message):
        call()


@pytest.mark.parametrize(
    "call, said",
    (
        (
            lambda: masks.parse('dense("model.npy")', "/nowhere"),
            ": /nowhere/model.npy: no such file",
        ),
        (lambda: masks.parse('dense("model.npy")'), 'got the file "model.npy"'),
        (lambda: masks.parse("causal & window_left(1)"), 'mask "window_left"'),
        (lambda: masks.predicate("options.x > 1"), "\n  options.x > 1\n         ^"),
        (lambda: masks.from_json('{"op": "problem.x"}'), 'mask "problem.x"'),
        (
            lambda: stof.plan("causal", seq_kv=4, **SHAPE, score_mod="score + alibi_slopes[h]"),
            'name "alibi_slopes"; a table of that name must be given beside the text\n'
            "  score + alibi_slopes[h]\n          ^",
        ),
    ),
)
def test_messages_keep_the_caller_s_own_text(call, said):
    with pytest.raises(stof.StofError) as refusal:
        call()
    assert said in str(refusal.value)


@pytest.mark.parametrize(
    "given, expected",
    (
        (
            "attention problem head_dim_qk: expected 1",
            "head_dim, the last extent of q and k: expected 1",
        ),
        ("head_dim_qk: the decode kernel takes", "head_dim: the decode kernel takes"),
        (
            "window_left, window_right, sink_tokens: expected",
            "window[0], window[1], sink_tokens: expected",
        ),
        ("attention problem batch * num_heads_q: expected", "batch * num_heads: expected"),
        ("alibi_slopes.shape: expected", "alibi.shape: expected"),
        ("tensors.score_tables[3]: expected", "score_tables[3]: expected"),
        ("model.npy: no such file", "model.npy: no such file"),
        ("no colon, head_dim_qk", "no colon, head_dim_qk"),
        (
            "bias: expected memory apart from alibi_slopes, got address ranges that overlap",
            "bias: expected memory apart from alibi, got address ranges that overlap",
        ),
    ),
)
def test_messages_of_the_library_have_the_names_of_the_package(given, expected):
    assert in_python(given) == expected
