"""Small inputs that other systems got wrong, through NumPy. The numbers are only names here."""

import mmap
import subprocess
import sys

import numpy as np
import oracle
import pytest
import stof
from stof import masks


def run(q, k, v, mask=None, **options):
    """(out, lse)."""
    return stof.attention(q, k, v, mask, return_lse=True, enable_gqa=True, **options)


def agrees(q, k, v, mask, visible, **options):
    out, lse = run(q, k, v, mask, **options)
    asked = {n: options[n] for n in ("scale", "softcap", "bias", "sink") if n in options}
    expected, sums = oracle.attention(q, k, v, visible, **asked)
    oracle.assert_close(out, expected)
    oracle.assert_close(lse, sums, what="lse")
    return out, lse


def rows(mask, queries, seq, **where):
    bound = mask.bind(seq, batch=where.get("batch", 0) + 1)
    return [bound.keys(q, seq, **where) for q in queries]


def span(a, b):
    return list(range(a, b + 1))


def test_01_rows_that_see_nothing_give_zero():
    q, k, v = oracle.arrays(1, 1, 1, 8, 8, 8)
    seen = np.zeros((8, 8), bool)
    seen[:4, :4] = True
    out, lse = agrees(q, k, v, seen, seen)
    assert (out[0, 0, 4:] == 0).all() and (lse[0, 0, 4:] == -np.inf).all()


def test_02_a_finite_bias_never_hides():
    q, k, v = oracle.arrays(2, 1, 1, 8, 8, 8)
    bias = np.zeros((8, 8), np.float32)
    bias[2], bias[5] = -3.4e38, -np.inf
    out, _ = run(q, k, v, bias=bias)
    np.testing.assert_allclose(out[0, 0, 2], v[0, 0].mean(0), rtol=1e-5, atol=1e-6)
    assert (out[0, 0, 5] == 0).all()


def test_03_more_queries_than_keys_and_large_logits():
    q, k, v = oracle.arrays(3, 1, 1, 8, 4, 8)
    visible = oracle.dense(lambda b, h, q, k: k <= q, 8, 4, offset=-4)
    out, _ = agrees(q, k, v, "causal", visible, alignment="bottom_right")
    assert (out[0, 0, :4] == 0).all()
    one = np.full((1, 1, 4, 1), 250.0, np.float32)
    out, lse = run(one, -one, v[:, :, :4], scale=1.0)  # logits of -6.25e4
    np.testing.assert_allclose(out[0, 0], np.broadcast_to(v[0, 0].mean(0), (4, 8)), rtol=1e-5)
    np.testing.assert_allclose(lse, np.log(4) - 62500, rtol=1e-6)


def test_04_nothing_in_the_first_tile():
    q, k, v = oracle.arrays(4, 1, 1, 128, 256, 8)
    seen = np.ones((128, 256), bool)
    seen[0, :128] = False
    agrees(q, k, v, seen, seen)


@pytest.mark.parametrize("seq_q, seq_kv, width", [(1025, 1025, 64), (129, 129, 16), (50, 137, 16)])
def test_05_tails(seq_q, seq_kv, width):
    q, k, v = oracle.arrays(5, 1, 1, seq_q, seq_kv, width)
    visible = np.arange(seq_kv) <= np.arange(seq_q)[:, None]
    agrees(q, k, v, "causal", visible)


def test_05_a_slice_of_a_transposed_cache():
    q, _, _ = oracle.arrays(5, 1, 2, 1, 1, 16)
    cache = np.random.default_rng(5).standard_normal((2, 1, 300, 2, 16)).astype(np.float32)
    k, v = (x.transpose(0, 2, 1, 3)[:, :, 128:228] for x in cache)
    agrees(q, k, v, None, None)


def test_06_padding_past_the_end_weighs_nothing():
    q, k, v = oracle.arrays(6, 1, 1, 5, 64 * 5 + 1, 8)
    agrees(np.abs(q), -np.abs(k), v, None, None)


def test_07_tables_are_not_asked_past_the_end():
    lengths = [n * n for n in range(1, 11)]
    total = sum(lengths)
    q, k, v = oracle.arrays(7, 1, 1, total, total, 8)
    number = np.repeat(np.arange(10), lengths)
    agrees(q, k, v, masks.document(lengths), number[:, None] == number[None, :])
    assert masks.document([1000, 1046]).stats(2046)["visible_pairs"] == 1000**2 + 1046**2


def test_08_long_plans_are_small():
    """The most memory that a process of its own ever had, before and after planning."""
    code = """
import stof

def most_kib():
    with open("/proc/self/status") as status:
        return int(next(line for line in status if line.startswith("VmHWM:")).split()[1])

def plan(seq):
    mask = stof.masks.window(256, 0)
    return stof.plan(mask, batch=1, num_heads=1, seq_q=seq, head_dim=8, dtype="float32")

plan(64)  # what is loaded once
before = most_kib()
kept = plan(96000)
print(most_kib() - before)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 64 << 10  # as against 8.6 GiB for a byte a pair
    assert masks.window(256, 0).stats(96000)["memory_bytes"] < 64 << 20


def far_apart(shape, strides, dtype):
    """Memory of an array whose elements lie past 2^31; pages that nobody touches do not exist."""
    dtype = np.dtype(dtype)
    elements = 1 + sum((n - 1) * step for n, step in zip(shape, strides))
    private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0x4000)
    memory = mmap.mmap(-1, elements * dtype.itemsize, flags=private)
    steps = [step * dtype.itemsize for step in strides]
    return np.lib.stride_tricks.as_strided(np.frombuffer(memory, dtype), shape, steps)


@pytest.mark.parametrize("axis", ["rows", "heads", "batch"])
def test_09_offsets_past_2_to_the_31(axis):
    """A cache of [rows, B, D] and the like; every stride but one is small."""
    shape, far = (2, 2, 3, 8), (1 << 31) + 8
    strides = dict(rows=(16, 8, far, 1), heads=(24, far, 8, 1), batch=(far, 24, 8, 1))[axis]
    q, k, v = oracle.arrays(9, *shape[:2], 3, 3, 8)
    apart = [far_apart(shape, strides, np.float32) for _ in range(3)]
    for memory, values in zip(apart, (q, k, v)):
        memory[...] = values
    expected, _ = agrees(q, k, v, "causal", np.tri(3, dtype=bool))
    np.testing.assert_array_equal(stof.attention(*apart, "causal"), expected)
    plan = stof.plan("causal", batch=2, num_heads=2, seq_q=3, head_dim=8, dtype="float32")
    out = far_apart(shape, strides, np.float32)
    plan.run(*apart, out=out)
    np.testing.assert_array_equal(out, expected)


def test_09_masks_past_2_to_the_31():
    assert masks.window(1, 0).bind(46341).keys(46340, 46341) == [46339, 46340]
    q, k, v = oracle.arrays(9, 2, 1, 4, 6, 8)
    seen = np.random.default_rng(9).random((2, 1, 4, 6)) < 0.5
    apart = far_apart(seen.shape, ((1 << 31) + 24, 24, 6, 1), bool)
    apart[...] = seen
    agrees(q, k, v, apart, seen)
    table = far_apart((2, 4), ((1 << 31) + 4, 1), np.int32)
    table[...] = [[0, 0, 1, 1], [0, 1, 1, 1]]
    mask = masks.predicate("t[b, q] == t[b, k]", t=table)
    assert mask.bind(4, batch=2).keys(3, 4, batch=1) == [1, 2, 3]


@pytest.mark.parametrize("extents", [(1, 1), (2, 1), (1, 2), (2, 2)])
def test_10_broadcast_masks(extents):
    q, k, v = oracle.arrays(10, 2, 2, 8, 8, 16)
    seen = np.random.default_rng(1).random((*extents, 8, 8)) < 0.5
    agrees(q, k, v, seen, seen)
    agrees(q, k, v, seen[:, :, 3:4], seen[:, :, 3:4])


def test_10_a_mask_of_another_batch_is_refused():
    q, k, v = oracle.arrays(10, 2, 2, 8, 8, 16)
    with pytest.raises(stof.InvalidArgument, match="2.*3|3.*2"):
        run(q, k, v, np.ones((3, 1, 8, 8), bool))


def test_11_shared_and_per_head_patterns_do_not_mix():
    q, k, v = oracle.arrays(11, 1, 2, 16, 16, 8)
    shared, own = masks.causal(), masks.per_head([masks.causal(), masks.window(2, 2)])
    first, _ = run(q, k, v, shared)
    second, _ = run(q, k, v, own)
    np.testing.assert_array_equal(first, run(q, k, v, shared)[0])
    assert np.abs(first[0, 1] - second[0, 1]).max() > 0.1
    agrees(q, k, v, own, own.to_dense(16, num_heads=2))


def test_12_strides():
    q, k, v = oracle.arrays(12, 1, 4, 30, 158, 8)
    agrees(q, k[:, :, :-128], v[:, :, :-128], None, None)
    agrees(q, np.broadcast_to(k[:, :1, :1], k.shape), v, None, None)
    packed = np.random.default_rng(1).standard_normal((30, 1, 4 + 2 * 2, 64)).astype(np.float32)
    heads = packed.transpose(1, 2, 0, 3)
    agrees(heads[:, :4], heads[:, 4:6], heads[:, 6:], None, None)


def test_13_block_lists_are_honoured():
    lists = [[0, 2], [1, 3], [0, 3], [2, 3]]
    mask = masks.blocks([lists], block_q=256, block_kv=256)
    assert mask.keys(300, 1024) == span(256, 511) + span(768, 1023)
    small = masks.blocks([lists], block_q=8, block_kv=8)
    q, k, v = oracle.arrays(13, 1, 1, 32, 32, 8)
    agrees(q, k, v, small, oracle.dense(lambda b, h, q, k: k // 8 in lists[q // 8], 32))


def test_14_block_lists_unsorted_ragged_and_repeated():
    q, k, v = oracle.arrays(14, 1, 1, 96, 90, 8)
    diagonal = masks.blocks([[[0], [1], [2]]], block_q=32, block_kv=32)
    agrees(q, k, v, diagonal, oracle.dense(lambda b, h, q, k: q // 32 == k // 32, 96, 90))
    unsorted = masks.blocks([[[2, 0], [1], [2, 1]]], block_q=32, block_kv=32)
    wanted = [[0, 2], [1], [1, 2]]
    agrees(q, k, v, unsorted, oracle.dense(lambda b, h, q, k: k // 32 in wanted[q // 32], 96, 90))
    with pytest.raises(stof.InvalidArgument, match="twice|duplicate|repeated|once"):
        masks.blocks([[[0, 0], [1], [2]]], block_q=32, block_kv=32)


@pytest.mark.parametrize("block", [(16, 16), (32, 32), (64, 64), (96, 96), (128, 128), (64, 128), (128, 64)])
@pytest.mark.parametrize("width", [64, 128, 192, 256])
def test_15_block_sizes(block, width):
    seq = 200
    rows_, columns = (-(-seq // n) for n in block)
    lists = [[c for c in range(columns) if (r + c) % 2 == 0] for r in range(rows_)]
    mask = masks.blocks([lists], block_q=block[0], block_kv=block[1])
    q, k, v = oracle.arrays(15, 1, 1, seq, seq, width)
    grid = (np.arange(seq)[:, None] // block[0] + np.arange(seq) // block[1]) % 2 == 0
    agrees(q, k, v, mask, grid)


@pytest.mark.parametrize("shape", [(10, 15), (10, 25), (5, 20), (20, 10)])
def test_16_dense_masks_of_other_lengths_are_refused(shape):
    q, k, v = oracle.arrays(16, 1, 1, 10, 20, 8)
    with pytest.raises(stof.InvalidArgument) as caught:
        run(q, k, v, np.ones(shape, bool))
    message = str(caught.value)
    assert (
        "10" in message
        and "20" in message
        and str(shape[1] if shape[0] == 10 else shape[0]) in message
    )


def test_17_no_stale_mask():
    q, k, v = oracle.arrays(17, 1, 1, 16, 16, 8)
    seen = np.random.default_rng(1).random((16, 16)) < 0.5
    for _ in range(2):
        agrees(q, k, v, seen, seen)
        agrees(q, k, v, masks.causal(), np.tri(16, dtype=bool))
        agrees(q, k, v, None, None)


def test_18_ragged_blocks():
    grid = np.array([[1, 0, 1], [0, 1, 0], [1, 1, 0]], bool)
    lists = [np.flatnonzero(row) for row in grid]
    mask = masks.blocks([lists], row_sizes=[1, 2, 3], col_sizes=[3, 1, 2])
    q, k, v = oracle.arrays(18, 1, 1, 6, 6, 8)
    seen = grid[np.repeat(np.arange(3), [1, 2, 3])][:, np.repeat(np.arange(3), [3, 1, 2])]
    agrees(q, k, v, mask, seen)


@pytest.mark.parametrize("lengths", [(2, 5), (5, 2)])
@pytest.mark.parametrize("alignment", ["top_left", "bottom_right"])
def test_20_alignments(lengths, alignment):
    offset = lengths[1] - lengths[0] if alignment == "bottom_right" else 0
    q, k, v = oracle.arrays(20, 1, 1, *lengths, 8)
    visible = oracle.dense(lambda b, h, q, k: k <= q, *lengths, offset=offset)
    agrees(q, k, v, masks.causal(), visible, alignment=alignment)


def test_21_a_plan_is_for_its_lengths():
    plan = stof.plan("causal", batch=1, num_heads=1, seq_q=8192, head_dim=8, dtype="float32")
    q, k, v = oracle.arrays(21, 1, 1, 1024, 1024, 8)
    with pytest.raises(stof.InvalidArgument, match=r"q: expected shape \[1, 1, 8192, 8\].*1024"):
        plan.run(q, k, v)


def test_22_everywhere_and_nowhere():
    q, k, v = oracle.arrays(22, 1, 1, 100, 100, 8)
    agrees(q, k, v, masks.all(), np.ones((100, 100), bool))
    agrees(q, k, v, ~masks.all(), np.zeros((100, 100), bool))
    for mask, density in ((masks.all(), 1.0), (masks.none(), 0.0)):
        stats = mask.stats(100)
        assert stats["element_density"] == density
        assert all(0 <= tile["density"] <= 1 for tile in stats["tiles"])


def test_34_windows_are_inclusive():
    assert rows(masks.causal() & masks.window(3, 0), (9, 2), 10) == [span(6, 9), [0, 1, 2]]
    assert rows(masks.sliding(4), (8,), 16) == [span(4, 12)]


def test_35_a_window_in_both_directions_is_not_ignored():
    mask = masks.sliding(64)
    assert rows(mask, (0, 150), 300) == [span(0, 64), span(86, 214)]
    q, k, v = oracle.arrays(35, 1, 1, 300, 300, 8)
    visible = np.abs(np.arange(300)[:, None] - np.arange(300)) <= 64
    full, _ = run(q, k, v)
    out, _ = agrees(q, k, v, mask, visible)
    assert np.abs(out - full).max() > 0.01
    agrees(q, k, v, mask & masks.key_lengths([280]), visible & (np.arange(300) < 280))


def test_36_order_matters():
    image = masks.shifted(masks.document([8]), dq=-2, dk=-2)
    window = masks.causal() & masks.window(3, 0)
    assert rows((masks.causal() | image) & masks.window(3, 0), (9, 11), 12) == [
        span(6, 9),
        span(8, 11),
    ]
    assert rows(masks.causal() | image, (3,), 12) == [span(0, 9)]
    assert rows(window | image, (3,), 12) == [span(0, 9)]
    assert rows((masks.causal() | image) & masks.window(-1, 6), (3,), 12) == [span(0, 9)]
    assert rows((masks.causal() | image) & masks.sliding(3), (3,), 12) == [span(0, 6)]


def test_37_chunks_with_left_padding():
    mask = masks.causal() & masks.shifted(masks.chunked(4), dq=-3, dk=-3)
    assert rows(mask, (6, 7, 9, 0, 1, 2), 10) == [span(3, 6), [7], [7, 8, 9], [], [], []]


def test_38_packed_by_position_ids():
    positions = [0, 1, 2, 0, 1, 2, 3, 4]
    starts = [i for i, p in enumerate(positions) if p == 0] + [len(positions)]
    mask = masks.causal() & masks.document(np.diff(starts)) & masks.key_lengths([8])
    assert rows(mask, (4,), 8) == [[3, 4]]


def test_39_key_masks_are_gathered_not_counted():
    keys = np.array([[1, 1, 0, 0, 1, 1, 0, 1], [0, 0, 0, 1, 1, 1, 1, 1]], bool)
    q, k, v = oracle.arrays(39, 2, 2, 8, 8, 8)
    agrees(q, k, v, keys[:, None, None, :], keys[:, None, None, :])


def test_40_cross_attention_of_unequal_keys():
    q, k, v = oracle.arrays(40, 2, 1, 64, 10, 8)
    visible = oracle.dense(lambda b, h, q, k: k < (6, 4)[b], 64, 10, batch=2)
    agrees(q, k, v, masks.key_lengths([6, 4]), visible)


def test_41_causal_means_the_future_is_not_felt():
    q, k, v = oracle.arrays(41, 1, 1, 8, 8, 8)
    before, _ = run(q, k, v, "causal")
    k[:, :, 7], v[:, :, 7] = 100, np.nan
    np.testing.assert_array_equal(run(q, k, v, "causal")[0][:, :, :7], before[:, :, :7])


def test_42_tiles_of_a_token_grid():
    sizes = [64, 48, 32, 24, 16, 12, 8, 6]
    assert sum(sizes) == 5 * 6 * 7
    lists = [[(r + i) % 8 for i in range(4)] for r in range(8)]  # half of the blocks
    mask = masks.blocks([lists], row_sizes=sizes, col_sizes=sizes)
    q, k, v = oracle.arrays(42, 1, 1, 210, 210, 8)
    block = np.repeat(np.arange(8), sizes)
    agrees(q, k, v, mask, (block[None, :] - block[:, None]) % 8 < 4)


def test_43_blocks_of_two_sizes_with_a_tail():
    for block_q, block_kv in ((128, 64), (64, 128)):
        for tail in (0, 77):
            seq = 200 + tail
            mask = masks.blocks(
                [[[r % 2] for r in range(-(-seq // block_q))]], block_q=block_q, block_kv=block_kv
            )
            q, k, v = oracle.arrays(43, 1, 1, seq, seq, 8)
            at = np.arange(seq)
            agrees(q, k, v, mask, (at[:, None] // block_q % 2) == at // block_kv)


def test_44_sparsity_is_what_was_kept():
    lists = [sorted((r * 7 + i * 3) % 590 for i in range(148)) for r in range(590)]
    mask = masks.blocks([lists], block_q=8, block_kv=8)
    density = mask.stats(590 * 8)["element_density"]
    assert round(1 - density, 3) == 0.749


def test_45_multi_item_scoring():
    prefix, items = 5, [3, 2, 4]
    own = masks.shifted(masks.document(items), dq=-prefix, dk=-prefix)
    mask = masks.causal() & (masks.prefix(prefix) | own)
    assert rows(mask, (8, 5), 14) == [[0, 1, 2, 3, 4, 8], span(0, 5)]


def test_46_block_diffusion():
    mask = masks.block_causal(4)
    bound = mask.bind(4, 10, alignment="bottom_right")
    assert [bound.keys(q, 10) for q in range(4)] == [span(0, 7), span(0, 7), span(0, 9), span(0, 9)]
    q, k, v = oracle.arrays(46, 1, 1, 32, 544, 8)
    visible = oracle.dense(lambda b, h, q, k: k // 32 <= q // 32, 32, 544, offset=512)
    agrees(q, k, v, masks.block_causal(32), visible, alignment="bottom_right")


def test_47_sinks():
    zero = np.zeros((1, 1, 1, 8), np.float32)
    _, k, v = oracle.arrays(47, 1, 1, 1, 2, 8)
    out, lse = run(zero, k, v, sink=np.zeros(1, np.float32))
    np.testing.assert_allclose(out, v.sum(2, keepdims=True) / 3, rtol=1e-6)
    np.testing.assert_allclose(lse, np.log(3), rtol=1e-6)
    out, _ = run(zero, k, v, sink=np.full(1, -np.inf, np.float32))
    np.testing.assert_allclose(out, v.mean(2, keepdims=True), rtol=1e-6)
    out, lse = run(zero, k, v, "none", sink=np.zeros(1, np.float32))
    assert (out == 0).all() and (lse == -np.inf).all()


def test_47_packed_documents_with_sinks_equal_separate_ones():
    ends, sink = [0, 5, 5, 14], np.array([0.7, -1.5], np.float32)
    q, k, v = (x[0].swapaxes(0, 1) for x in oracle.arrays(47, 1, 2, 14, 14, 8))
    packed, sums = stof.varlen_attention(q, k, v, ends, mask="causal", sink=sink, return_lse=True)
    together = masks.causal() & masks.document(np.diff(ends))
    whole = [x.swapaxes(0, 1)[None] for x in (q, k, v)]
    joined, joined_sums = run(*whole, together, sink=sink)
    oracle.assert_close(joined[0].swapaxes(0, 1), packed)
    oracle.assert_close(joined_sums[0], sums)
    for begin, end in zip(ends, ends[1:]):
        own = [x[begin:end].swapaxes(0, 1)[None] for x in (q, k, v)]
        visible = np.tri(end - begin, dtype=bool)
        expected, expected_sums = oracle.attention(*own, visible, sink=sink)
        oracle.assert_close(packed[begin:end].swapaxes(0, 1)[None], expected)
        oracle.assert_close(sums[:, begin:end][None], expected_sums)


def test_48_softcap_and_options_that_differ_from_the_plan():
    q = np.full((1, 1, 2, 1), 200, np.float32)
    k = np.array([1, -1], np.float32).reshape(1, 1, 2, 1)
    _, _, v = oracle.arrays(48, 1, 1, 2, 2, 8)
    agrees(q, k, v, None, None, scale=1.0, softcap=50.0)
    plan = stof.plan(None, batch=1, num_heads=1, seq_q=2, head_dim=1, head_dim_v=8, dtype="float32")
    for options, message in [
        (dict(softcap=50.0), "softcap: expected the plan's 0.0"),
        (dict(scale=2.0), "scale: expected the plan's None"),
        (dict(return_lse=True), "return_lse: expected the plan's False"),
        (dict(alignment="bottom_right"), "alignment: expected the plan's 'top_left'"),
        (dict(mask="causal"), r"mask: expected the plan's \(all\)"),
        (
            dict(sink=np.zeros(1, np.float32)),
            "sink: expected none because the plan was made without",
        ),
    ]:
        with pytest.raises(stof.InvalidArgument, match=message):
            stof.attention(q, k, v, plan=plan, **options)
