"""Outputs against the oracle: options, layouts, element types, random problems."""

import numpy as np
import oracle
import pytest
import stof
from stof import masks


def check(q, k, v, mask, visible, dtype="float32", offset=0, reference=(), **options):
    out, lse = stof.attention(q, k, v, mask, return_lse=True, enable_gqa=True, **options)
    asked = {n: options[n] for n in ("scale", "softcap", "alibi", "bias", "sink") if n in options}
    expected, sums = oracle.attention(q, k, v, visible, offset=offset, **asked, **dict(reference))
    assert out.dtype == q.dtype and out.flags.c_contiguous and lse.dtype == np.float32
    oracle.assert_close(out, expected, dtype)
    oracle.assert_close(lse, sums, "float32" if dtype == "float32" else dtype, "lse")
    return out


@pytest.mark.parametrize("seed", range(24))
def test_random_problems(seed):
    rng = np.random.default_rng(seed)
    batch, kv_heads, share = (int(x) for x in rng.integers(1, 4, 3))
    heads = kv_heads * share
    seq_q, seq_kv = (int(x) for x in rng.integers(1, 90, 2))
    width, width_v = (int(x) for x in rng.integers(1, 40, 2))
    q, k, v = oracle.arrays(
        seed, batch, heads, seq_q, seq_kv, width, heads_kv=kv_heads, width_v=width_v
    )
    alignment = ("top_left", "bottom_right")[rng.integers(2)]
    offset = seq_kv - seq_q if alignment == "bottom_right" else 0
    left, right, first = (int(x) for x in rng.integers(0, 20, 3))
    mask = masks.window(left, right) | masks.prefix(first)
    visible = oracle.dense(  # prefix sees nothing from positions below 0, docs/masks.md
        lambda b, h, q, k: q - left <= k <= q + right or (k < first and q >= 0),
        seq_q,
        seq_kv,
        offset=offset,
    )
    options = {}
    if rng.random() < 0.3:
        options["scale"] = float(rng.random())
    if rng.random() < 0.3:
        options["softcap"] = 1 + 10 * float(rng.random())
    if rng.random() < 0.3:
        options["alibi"] = rng.random(heads).astype(np.float32)
    if rng.random() < 0.3:
        options["sink"] = rng.standard_normal(heads).astype(np.float32)
    if rng.random() < 0.3:
        shape = [n if rng.random() < 0.5 else 1 for n in (batch, heads, seq_q, seq_kv)]
        options["bias"] = rng.standard_normal(shape).astype(np.float32)
    check(q, k, v, mask, visible, offset=offset, alignment=alignment, **options)


@pytest.mark.parametrize("both", [True, False])
def test_position_buckets(both):
    q, k, v = oracle.arrays(1, 1, 2, 50, 60, 8)
    table = np.random.default_rng(2).standard_normal((16, 2)).astype(np.float32)
    check(
        q,
        k,
        v,
        None,
        None,
        position_bias=stof.PositionBias(table=table, max_distance=40, bidirectional=both),
        reference={"position_bias": (table, 40, both)},
    )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_sixteen_bits(dtype):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    kind = np.float16 if dtype == "float16" else ml_dtypes.bfloat16
    q, k, v = oracle.arrays(4, 2, 3, 40, 33, 16, dtype=kind)
    visible = oracle.dense(lambda b, h, q, k: k <= q, 40, 33)
    out = check(q, k, v, masks.causal(), visible, dtype)
    assert out.dtype == kind
    plan = stof.plan("causal", batch=1, num_heads=1, seq_q=4, head_dim=8, dtype=kind)
    assert plan.dtype == dtype


def test_layouts():
    # q, k, v cut from one [S, B, heads * 3, D] array, seen as [B, H, S, D]; reversed; expanded.
    packed = np.random.default_rng(5).standard_normal((30, 2, 9, 8)).astype(np.float32)
    q, k, v = (x.transpose(1, 2, 0, 3) for x in np.split(packed, 3, axis=2))
    visible = oracle.dense(lambda b, h, q, k: k <= q, 30)
    check(q, k, v, "causal", visible)
    check(q[:, :, ::-1], k[..., ::-1, :], v, "causal", visible)
    one = np.broadcast_to(k[:, :1, :1], (2, 3, 30, 8))
    check(q, one, np.broadcast_to(v[:1, :1], v.shape), "causal", visible)
    # A last stride other than 1 is copied.
    check(q[..., ::2], k[..., ::2], np.asfortranarray(v), "causal", visible)
    columns = np.ascontiguousarray(q.swapaxes(2, 3)).swapaxes(2, 3)
    assert columns.strides[-1] != 4
    check(columns, k, v, "causal", visible)
    read_only = q.copy()
    read_only.flags.writeable = False
    check(read_only, k, v, "causal", visible)


def test_outputs_of_the_caller():
    q, k, v = oracle.arrays(6, 2, 2, 20, 20, 8, width_v=12)
    plan = stof.plan(
        "causal",
        batch=2,
        num_heads=2,
        seq_q=20,
        head_dim=8,
        head_dim_v=12,
        dtype="float32",
        return_lse=True,
    )
    expected, sums = oracle.attention(q, k, v, oracle.dense(lambda b, h, q, k: k <= q, 20))
    frame = np.full((20, 2, 2, 24), np.nan, np.float32)
    out = frame[..., :12].transpose(1, 2, 0, 3)
    lse = np.full((2, 2, 20), np.nan, np.float32)
    got = plan.run(q, k, v, out=out, lse=lse)
    assert got[0] is out and got[1] is lse
    oracle.assert_close(out, expected)
    oracle.assert_close(lse, sums, what="lse")
    assert np.isnan(frame[..., 12:]).all()  # nothing else was written
    for bad, message in [
        (dict(out=np.empty((2, 2, 20, 8), np.float32)), r"out: expected shape \[2, 2, 20, 12\]"),
        (
            dict(out=np.empty((2, 2, 20, 12), np.float16)),
            "out: expected dtype float32, got float16",
        ),
        (dict(out=np.broadcast_to(np.float32(0), (2, 2, 20, 12))), "out: expected memory to write"),
        (dict(out=np.empty((2, 2, 12, 20), np.float32).swapaxes(2, 3)), "out: expected a last str"),
        (dict(out=v), "out: expected memory apart from v"),
        (dict(lse=np.empty((2, 20), np.float32)), r"lse: expected shape \[2, 2, 20\]"),
        (dict(lse=[0.0]), "lse: expected an array of NumPy like q, got list"),
    ]:
        with pytest.raises(stof.InvalidArgument, match=message):
            plan.run(q, k, v, **bad)


def test_read_only_memory_is_not_written():
    """Whether it is seen at first, or after memory of the same layout that may be written."""
    q, k, v = oracle.arrays(7, 1, 2, 9, 9, 8)
    options = dict(batch=1, num_heads=2, seq_q=9, head_dim=8, dtype="float32", return_lse=True)
    for warm in (False, True):
        plan = stof.plan("causal", **options)
        given = dict(out=np.zeros_like(q), lse=np.zeros((1, 2, 9), np.float32))
        if warm:
            plan.run(q, k, v, **given)
        for name, array in given.items():
            before = array.copy()
            array.flags.writeable = False
            with pytest.raises(stof.InvalidArgument, match=f"{name}: expected memory to write to"):
                plan.run(q, k, v, **given)
            np.testing.assert_array_equal(array, before)
            array.flags.writeable = True
            plan.run(q, k, v, **given)


@pytest.mark.parametrize("mask", [None, "causal", masks.window(2, 1) | masks.prefix(1)])
def test_packed_sequences_equal_separate_ones(mask):
    lengths_q, lengths_kv = [3, 0, 17, 1], [5, 2, 17, 9]
    cu_q, cu_kv = (np.cumsum([0, *x]) for x in (lengths_q, lengths_kv))
    rng = np.random.default_rng(8)
    q = rng.standard_normal((cu_q[-1], 4, 8)).astype(np.float32)
    k, v = (rng.standard_normal((cu_kv[-1], 2, 8)).astype(np.float32) for _ in range(2))
    sink = rng.standard_normal(4).astype(np.float32)
    options = dict(enable_gqa=True, sink=sink, softcap=5.0, return_lse=True)
    out, lse = stof.varlen_attention(q, k, v, cu_q, cu_kv.astype(np.int32), mask, **options)
    assert out.shape == q.shape and lse.shape == (4, cu_q[-1])
    for i in range(4):
        rows, columns = slice(*cu_q[i : i + 2]), slice(*cu_kv[i : i + 2])
        if not lengths_q[i]:
            continue
        one, sums = stof.attention(
            *(x.swapaxes(0, 1)[None] for x in (q[rows], k[columns], v[columns])), mask, **options
        )
        np.testing.assert_array_equal(out[rows], one[0].swapaxes(0, 1))
        np.testing.assert_array_equal(lse[:, rows], sums[0])


def test_packed_sequences_are_refused_what_they_cannot_have():
    q = np.zeros((10, 2, 8), np.float32)
    for arguments, message in [
        ((q, q, q, [0, 4, 9]), "cu_seqlens_q: expected it to end with 10, the rows of q, got 9"),
        ((q, q, q, [1, 10]), "cu_seqlens_q: expected cumulative lengths that ascend from 0"),
        ((q, q, q, [0, 6, 4, 10]), "cu_seqlens_q: expected cumulative lengths that ascend"),
        ((q, q, q, [0, 10], [0, 4, 10]), "cu_seqlens_kv: expected 2 entries like cu_seqlens_q"),
        ((q, q, q, np.zeros((2, 2), int)), r"cu_seqlens_q: expected .* got shape \[2, 2\]"),
        ((q, q, q, [0.0, 10.0]), r"cu_seqlens_q\[0\]: expected a whole number, got 0.0"),
        ((q[None], q, q, [0, 10]), r"q: expected \[rows, heads, head_dim\], got shape \[1, 10"),
    ]:
        with pytest.raises(stof.InvalidArgument, match=message):
            stof.varlen_attention(*arguments)
    with pytest.raises(stof.InvalidArgument, match="mask: expected a stof.Mask"):
        stof.varlen_attention(q, q, q, [0, 10], mask=np.ones((10, 10), bool))


def test_boolean_arrays_are_masks():
    q, k, v = oracle.arrays(9, 2, 3, 14, 11, 8)
    seen = np.random.default_rng(1).random((2, 1, 14, 11)) < 0.4
    check(q, k, v, seen, seen)
    check(q, k, v, seen[0, 0], seen[:1])
    seen[:] = True  # contents may change between calls
    check(q, k, v, seen, seen)


def test_biases_of_sixteen_bits_are_widened():
    q, k, v = oracle.arrays(10, 1, 2, 9, 9, 8)
    bias = np.random.default_rng(1).standard_normal((1, 1, 9, 9)).astype(np.float16)
    check(q, k, v, None, None, bias=bias)
    with pytest.raises(stof.InvalidArgument, match="bias: expected dtype float32, .* got float64"):
        stof.attention(q, k, v, bias=bias.astype(np.float64))


class Foreign:
    """An array of a library that stof has not heard of."""

    def __init__(self, array):
        self._array = array
        self.shape, self.dtype = array.shape, array.dtype

    def __dlpack__(self, **options):
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()

    def __array_namespace__(self):
        return Foreign

    @staticmethod
    def from_dlpack(array):
        return Foreign(np.from_dlpack(array))


def test_other_libraries_by_dlpack():
    q, k, v = oracle.arrays(11, 1, 2, 9, 9, 8)
    expected, sums = stof.attention(q, k, v, "causal", return_lse=True)
    out, lse = stof.attention(*map(Foreign, (q, k, v)), "causal", return_lse=True)
    assert isinstance(out, Foreign) and isinstance(lse, Foreign)
    np.testing.assert_array_equal(out._array, expected)
    np.testing.assert_array_equal(lse._array, sums)
    plan = stof.plan("causal", batch=1, num_heads=2, seq_q=9, head_dim=8, dtype="float32")
    np.testing.assert_array_equal(plan(*map(Foreign, (q, k, v)))._array, expected)
    given = Foreign(np.zeros_like(expected))
    assert plan(*map(Foreign, (q, k, v)), out=given) is given
    np.testing.assert_array_equal(given._array, expected)
    table = np.arange(9, dtype=np.float32)
    modified = stof.plan(
        "causal",
        batch=1,
        num_heads=2,
        seq_q=9,
        head_dim=8,
        dtype="float32",
        score_mod=stof.ScoreMod("score + t[k]", {"t": table}),
    )
    np.testing.assert_array_equal(
        modified.run(*map(Foreign, (q, k, v)), score_tables=[Foreign(table)])._array,
        modified.run(q, k, v, score_tables=[table]),
    )


def test_packed_sequences_of_other_libraries_by_dlpack():
    q, k, v = (x[0].swapaxes(0, 1).copy() for x in oracle.arrays(11, 1, 2, 9, 9, 8))
    starts = np.array([0, 4, 9], np.int32)
    table, slopes = np.ones((4, 2), np.float32), np.array([0.5, 0.25], np.float32)
    rel = np.arange(9, dtype=np.float32)

    def call(of, starts):
        return stof.varlen_attention(
            *map(of, (q, k, v)),
            starts,
            mask="causal",
            alibi=of(slopes),
            sink=of(slopes),
            position_bias=stof.PositionBias(table=of(table)),
            score_mod=stof.ScoreMod("score + rel[k]", {"rel": of(rel)}),
            return_lse=True,
        )

    expected = call(np.asarray, starts)
    for given in (Foreign(starts), starts, starts.tolist()):
        for got, want in zip(call(Foreign, given), expected):
            assert isinstance(got, Foreign)
            np.testing.assert_array_equal(got._array, want)
    plan = stof.varlen_plan("causal", Foreign(starts), num_heads=2, head_dim=8, dtype="float32")
    out = stof.varlen_attention(*map(Foreign, (q, k, v)), Foreign(starts), plan=plan)
    np.testing.assert_array_equal(out._array, plan.run(q, k, v))
