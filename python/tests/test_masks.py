"""Every primitive, operator and preset against its rule, written down again here."""

import copy
import pickle

import numpy as np
import oracle
import pytest
import stof
from stof import masks

N = 12


def tree_sees(parents, prefix):
    def rule(b, h, q, k):
        if k < prefix:
            return True
        node, wanted = q, k - prefix
        while node >= 0:
            if node == wanted:
                return True
            node = parents[node]
        return False

    return rule


def same_document(lengths):
    ends = np.cumsum(lengths)
    return lambda b, h, q, k: (
        q < ends[-1]
        and k < ends[-1]
        and np.searchsorted(ends, q, "right") == np.searchsorted(ends, k, "right")
    )


def near(grid, kernel):
    def rule(b, h, q, k):
        for extent, width, a, c in zip(
            grid, kernel, np.unravel_index(q, grid), np.unravel_index(k, grid)
        ):
            start = min(max(a - width // 2, 0), max(extent - width, 0))
            if not start <= c < start + width:
                return False
        return True

    return rule


PARENTS = [-1, 0, 0, 1, 1, 2, 2, 5, 5, 3, 3, 4]
HEADS = [[[0], [0, 1], [2]]]
DOCUMENTS = np.array([3, 3, 3, 1, 1, 1, 1, 3, 0, 0, 2, 2], np.int32)
FLAGS = np.random.default_rng(7).random((2, 2, 12)) < 0.3

RULES = {
    "all": (masks.all(), lambda b, h, q, k: True),
    "none": (masks.none(), lambda b, h, q, k: False),
    "causal": (masks.causal(), lambda b, h, q, k: k <= q),
    "causal offset": (masks.causal(2), lambda b, h, q, k: k <= q + 2),
    "window": (masks.window(3, 1), lambda b, h, q, k: q - 3 <= k <= q + 1),
    "window unbounded": (masks.window(-1, 1), lambda b, h, q, k: k <= q + 1),
    "chunked": (masks.chunked(4), lambda b, h, q, k: q // 4 == k // 4),
    "block_causal": (masks.block_causal(4), lambda b, h, q, k: k // 4 <= q // 4),
    "block_window": (
        masks.block_window(2, 1, 0),
        lambda b, h, q, k: q // 2 - 1 <= k // 2 <= q // 2,
    ),
    "prefix": (masks.prefix(4), lambda b, h, q, k: k < 4),
    "sink": (masks.sink(2), lambda b, h, q, k: k < 2),
    "global": (masks.global_(rows=1, cols=2), lambda b, h, q, k: q < 1 or k < 2),
    "global_tokens": (
        masks.global_tokens(np.array([0, 7])),
        lambda b, h, q, k: q in (0, 7) or k in (0, 7),
    ),
    "global_tokens columns": (
        masks.global_tokens([0, 7], rows=False),
        lambda b, h, q, k: k in (0, 7),
    ),
    "dilated": (masks.dilated(4, 2), lambda b, h, q, k: abs(q - k) <= 4 and (q - k) % 2 == 0),
    "strided": (masks.strided(1, 4), lambda b, h, q, k: abs(q - k) <= 1 or (q - k) % 4 == 0),
    "summary": (masks.summary(4, 1), lambda b, h, q, k: k % 4 >= 3),
    "document": (masks.document([3, 5, 4]), same_document([3, 5, 4])),
    "key_lengths": (masks.key_lengths([5, 9]), lambda b, h, q, k: k < (5, 9)[b]),
    "neighbourhood": (masks.neighbourhood([3, 4], [3, 3]), near((3, 4), (3, 3))),
    "tree": (masks.tree(PARENTS), tree_sees(PARENTS, 0)),
    "intervals": (
        masks.intervals([[4] * 4 + [0] * 8], [[12] * 4 + [4] * 8]),
        lambda b, h, q, k: not (4 <= q < 12 if k < 4 else q < 4),
    ),
    "blocks": (
        masks.blocks(HEADS, block_q=4, block_kv=4),
        lambda b, h, q, k: k // 4 in HEADS[0][q // 4],
    ),
    "ragged blocks": (
        masks.blocks([[[0], [1]]], row_sizes=[5, 7], col_sizes=[3, 9]),
        lambda b, h, q, k: (k < 3) == (q < 5),
    ),
    "shifted": (
        masks.shifted(masks.document([4, 4]), dq=-2, dk=-2),
        lambda b, h, q, k: min(q, k) >= 2 and max(q, k) < 10 and (q - 2) // 4 == (k - 2) // 4,
    ),
    "per_head": (
        masks.per_head([masks.causal(), masks.window(1, 1)]),
        lambda b, h, q, k: k <= q if h == 0 else abs(q - k) <= 1,
    ),
    "per_batch": (
        masks.per_batch([masks.causal(), masks.all()]),
        lambda b, h, q, k: k <= q or b == 1,
    ),
    "batch_entry": (
        masks.batch_entry(masks.key_lengths([5, 8]), 1),
        lambda b, h, q, k: k < 8,
    ),
    "and": (masks.causal() & masks.window(2, 2), lambda b, h, q, k: q - 2 <= k <= q),
    "or": (masks.window(1, 0) | masks.prefix(2), lambda b, h, q, k: q - 1 <= k <= q or k < 2),
    "not": (~masks.causal(), lambda b, h, q, k: k > q),
    "predicate": (
        masks.predicate("(q - k <= 4) & (q % 3 != k % 2)"),
        lambda b, h, q, k: q - k <= 4 and q % 3 != k % 2,
    ),
    "predicate with tables": (
        masks.predicate("(doc[q] == doc[k]) | flag[b, h, k]", doc=DOCUMENTS, flag=FLAGS[:, ::-1]),
        lambda b, h, q, k: DOCUMENTS[q] == DOCUMENTS[k] or FLAGS[b, 1 - h, k],
    ),
    "bert_padding": (masks.bert_padding([5, 7]), lambda b, h, q, k: k < (5, 7)[b]),
    "sliding": (masks.sliding(2), lambda b, h, q, k: abs(q - k) <= 2),
    "longformer": (
        masks.longformer(2, 1),
        lambda b, h, q, k: abs(q - k) <= 2 or q < 1 or k < 1,
    ),
    "sparse_transformer_strided": (
        masks.sparse_transformer_strided(1, 4),
        lambda b, h, q, k: k <= q and (q - k <= 1 or (q - k) % 4 == 0),
    ),
    "sparse_transformer_fixed": (
        masks.sparse_transformer_fixed(4, 1),
        lambda b, h, q, k: k <= q and (q // 4 == k // 4 or k % 4 == 3),
    ),
    "streaming": (masks.streaming(1, 2), lambda b, h, q, k: k <= q and (k < 1 or q - k <= 2)),
}


@pytest.mark.parametrize("name", RULES)
def test_sees_what_its_rule_says(name):
    mask, rule = RULES[name]
    expected = oracle.dense(rule, N, batch=2, heads=2)
    np.testing.assert_array_equal(mask.to_dense(N, batch=2, num_heads=2), expected)
    assert stof.masks.parse(mask.to_text()) == mask
    assert stof.masks.from_json(mask.to_json()) == mask
    bound = mask.bind(N, batch=2, num_heads=2)
    for b, h, q in ((0, 0, 0), (1, 1, 5), (0, 1, 11)):
        row = expected[b, h, q]
        assert bound.keys(q, N, batch=b, head=h) == np.flatnonzero(row).tolist()
        assert [bound.visible(q, k, batch=b, head=h) for k in range(N)] == row.tolist()
    shown = mask.draw(N, batch=1, head=1).splitlines()
    assert shown == ["".join(".#"[int(x)] for x in row) for row in expected[1, 1]]


def test_no_documents_see_nothing():
    assert masks.document([]) == masks.document([0]) == masks.none()


def test_random_masks_follow_the_documented_generator():
    def mix(x):
        x ^= x >> 30
        x = x * 0xBF58476D1CE4E5B9 % 2**64
        x ^= x >> 27
        x = x * 0x94D049BB133111EB % 2**64
        return x ^ x >> 31

    def key(*values):
        state = values[0] * 0
        for value in values:
            state = mix(((state ^ value) + 0x9E3779B97F4A7C15) % 2**64)
        return state

    pairs = masks.random(rate=0.3, seed=7)
    expected = oracle.dense(lambda b, h, q, k: (key(7, 0, q, k) >> 11) < 0.3 * 2**53, N)
    np.testing.assert_array_equal(pairs.to_dense(N), expected)
    blocks = masks.random_blocks(2, count=2, seed=7)
    columns = [sorted(range(6), key=lambda c: key(7, 0, r, c))[:2] for r in range(6)]
    expected = oracle.dense(lambda b, h, q, k: k // 2 in columns[q // 2], N)
    np.testing.assert_array_equal(blocks.to_dense(N), expected)
    assert masks.random_blocks(2, rate=0.5).bind(N).visible(0, 0) in (True, False)
    bigbird = masks.bigbird(2, 1, 1, 1, seed=1)
    assert bigbird == (
        masks.block_window(2, 1, 1) | masks.global_(2, 2) | masks.random_blocks(2, count=1, seed=1)
    )


def test_dense_takes_any_strides_and_extents_of_one():
    rng = np.random.default_rng(3)
    wide = rng.random((2, 3, 24, 20)) < 0.5
    view = wide[:, ::-1, ::2, 1::2]
    np.testing.assert_array_equal(masks.dense(view).to_dense(12, 10, batch=2, num_heads=3), view)
    row = wide[:1, :1, :1, :12]
    np.testing.assert_array_equal(
        masks.dense(row).to_dense(12, batch=2, num_heads=2), np.broadcast_to(row, (2, 2, 12, 12))
    )
    with pytest.raises(stof.InvalidArgument, match="expected bool.*got float32.*bias="):
        masks.dense(np.zeros((4, 4), np.float32))


@pytest.mark.parametrize("seed", range(20))
def test_random_expressions_mean_what_their_operators_mean(seed):
    rng = np.random.default_rng(seed)
    names = [n for n in RULES if n not in ("batch_entry",)]

    def grow(depth):
        if depth == 0 or rng.random() < 0.2:
            mask, rule = RULES[names[rng.integers(len(names))]]
            return mask, oracle.dense(rule, N, batch=2, heads=2)
        left, seen = grow(depth - 1)
        operator = rng.integers(3)
        if operator == 2:
            return ~left, ~seen
        right, other = grow(depth - 1)
        return (left & right, seen & other) if operator else (left | right, seen | other)

    mask, expected = grow(4)
    np.testing.assert_array_equal(mask.to_dense(N, batch=2, num_heads=2), expected)
    again = pickle.loads(pickle.dumps(mask))
    assert again == mask and hash(again) == hash(mask) and again.fingerprint == mask.fingerprint
    assert mask.stats(N, batch=2, num_heads=2)["visible_pairs"] == int(expected.sum())


def test_is_a_value():
    mask = masks.causal() & masks.window(3, 0)
    assert mask == masks.window(3, 0) & masks.causal()
    assert mask != masks.causal() and mask != "causal"
    assert len({mask, masks.window(3, 0) & masks.causal(), masks.all()}) == 2
    assert copy.copy(mask) is mask and copy.deepcopy(mask) is mask
    assert (
        str(mask) == "causal & window(3, 0)" and repr(mask) == "<stof.Mask causal & window(3, 0)>"
    )
    with pytest.raises(stof.InvalidArgument, match="expected & | ~"):
        bool(mask)
    with pytest.raises(TypeError):
        mask & 3


def test_pictures():
    mask = masks.longformer(4, 2)
    for picture in (
        mask.png(40),
        mask.png(40, kind="tiles", title="longformer"),
        mask._repr_png_(),
    ):
        assert picture.startswith(b"\x89PNG\r\n\x1a\n")
    assert "longformer" not in mask._repr_html_() and "data:image/png;base64," in mask._repr_html_()
    assert "window(4, 4)" in mask._repr_html_()
    assert masks.document([3, 4])._repr_png_() is not None
    heads = masks.per_head([masks.all(), masks.none()])
    assert heads.draw(2, head=0) == "##\n##\n" and heads.draw(2, head=1) == "..\n..\n"
    with pytest.raises(stof.InvalidArgument, match="kind: expected"):
        mask.png(40, kind="dots")


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: masks.causal(1.5), "offset: expected a whole number, got 1.5"),
        (lambda: masks.document(3), "lengths: expected a list of whole numbers, got 3"),
        (lambda: masks.document([3, "x"]), r"lengths\[1\]: expected a whole number, got 'x'"),
        (lambda: masks.document([-1]), "lengths"),
        (lambda: masks.chunked(0), "n"),
        (lambda: masks.global_tokens([1], rows=1), "rows: expected True or False, got 1"),
        (
            lambda: masks.per_head([masks.all(), "all"]),
            r"masks\[1\]: expected a stof.Mask, got str",
        ),
        (lambda: masks.random_blocks(4), "count"),
        (lambda: masks.parse("causal & casual"), 'unknown mask "casual"; did you mean "causal"'),
        (lambda: masks.parse(3), "text: expected a string, got int"),
        (lambda: masks.predicate("k <= "), r"\^"),
        (lambda: masks.predicate("doc[q] == doc[k]"), "doc"),
        (lambda: masks.predicate("w[q] > 0", w=np.ones(3)), "w"),
        (lambda: masks.parse('dense("mask.npy")'), "base_dir|folder|file"),
        (lambda: masks.causal().bind(4, alignment="left"), 'alignment: expected "top_left"'),
        (lambda: masks.dense(np.ones((3, 4), bool)).bind(4, 4), r"3.*4|4.*3"),
    ],
)
def test_refuses(make, message):
    with pytest.raises(stof.StofError, match=message):
        make()


def test_files(tmp_path):
    mask = masks.causal() & (masks.window(3, 0) | masks.predicate("k < n[b]", n=np.array([4, 2])))
    mask.save(tmp_path / "mask.json")
    assert masks.load(tmp_path / "mask.json") == mask
    assert masks.load(str(tmp_path / "mask.json")).to_json() == mask.to_json()
    with pytest.raises(stof.NotFound, match="none.json"):
        masks.load(tmp_path / "none.json")
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(stof.Corrupt, match="bad.json: "):
        masks.load(tmp_path / "bad.json")
    (tmp_path / "bad.json").write_bytes(b"\xff\xfe")
    with pytest.raises(stof.Corrupt, match="bad.json: expected JSON"):
        masks.load(tmp_path / "bad.json")


@pytest.mark.parametrize("seed", [7, 2**63 + 5, 2**64 - 1])
def test_seeds_have_64_bits(seed):
    for mask in (
        masks.random(0.5, seed),
        masks.random_blocks(4, rate=0.5, seed=seed),
        masks.bigbird(seed=seed),
    ):
        assert str(seed) in mask.to_text()
    for wrong in (-1, 2**64, 0.5):
        with pytest.raises(stof.InvalidArgument, match="seed: expected a whole number"):
            masks.random(0.5, wrong)
