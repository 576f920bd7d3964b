"""Score modifications against the oracle, which computes them with NumPy."""

import numpy as np
import oracle
import pytest
import stof
from stof import ScoreMod, masks

MODS = {
    "distance": (ScoreMod("score + 0.25 * (k - q)"), lambda s, b, h, q, k: s + 0.25 * (k - q)),
    "softcap": (
        ScoreMod("5.0 * tanh(score / 5.0)"),
        lambda s, b, h, q, k: 5 * np.tanh(s / 5),
    ),
    "where": (
        ScoreMod("where(q - k < 4, score, score * 0.5)"),
        lambda s, b, h, q, k: np.where(q - k < 4, s, s * 0.5),
    ),
    "hides": (
        ScoreMod("where(abs(q - k) % 3 == 1, -inf, score)"),
        lambda s, b, h, q, k: np.where(abs(q - k) % 3 == 1, -np.inf, s),
    ),
}


@pytest.mark.parametrize("name", MODS)
@pytest.mark.parametrize("alignment", ["top_left", "bottom_right"])
def test_means_what_it_says(name, alignment):
    mod, rule = MODS[name]
    offset = 8 if alignment == "bottom_right" else 0
    q, k, v = oracle.arrays(3, 2, 2, 21, 29, 8)
    visible = oracle.dense(lambda b, h, q, k: k <= q, 21, 29, offset=offset)
    out, lse = stof.attention(
        q, k, v, "causal", score_mod=mod, alignment=alignment, return_lse=True
    )
    expected, sums = oracle.attention(q, k, v, visible, score_mod=rule, offset=offset)
    oracle.assert_close(out, expected)
    oracle.assert_close(lse, sums, what="lse")


def test_tables_are_read_in_every_call():
    q, k, v = oracle.arrays(4, 2, 2, 12, 12, 8)
    slope = np.array([0.5, -0.25], np.float32)
    relative = np.random.default_rng(0).standard_normal((2, 23)).astype(np.float32)
    mod = ScoreMod(
        "score * slope[h] + rel[h, q - k + 11]", {"slope": slope, "rel": relative[:, ::-1]}
    )

    def rule(s, b, h, q, k):
        return s * slope[h] + relative[:, ::-1][h][q - k + 11]

    stof.cache_clear()
    for _ in range(2):
        out = stof.attention(q, k, v, masks.causal(), score_mod=mod)
        visible = np.tri(12, dtype=bool)
        oracle.assert_close(out, oracle.attention(q, k, v, visible, score_mod=rule)[0])
        slope += 1
    assert stof.cache_info()[:2] == (1, 1)
    rows = [x[0].swapaxes(0, 1) for x in (q, k, v)]
    packed = stof.varlen_attention(*rows, [0, 12], mask="causal", score_mod=mod)
    single = stof.attention(*(x[:1] for x in (q, k, v)), "causal", score_mod=mod)
    np.testing.assert_array_equal(packed, single[0].swapaxes(0, 1))


def test_is_a_value_and_refuses():
    table = np.zeros(4, np.float32)
    assert ScoreMod("score + t[k]", {"t": table}) == ScoreMod("score + t[k]", {"t": table + 1})
    assert ScoreMod("score + t[k]", {"t": table}) != ScoreMod("score + t[k]", {"t": table[:3]})
    q, k, v = oracle.arrays(5, 1, 1, 4, 4, 8)
    for mod, message in [
        ("score + u[k]", "u"),
        ("score +", "score_mod"),
        ("score + missing[k]", "missing"),
    ]:
        with pytest.raises(stof.InvalidArgument, match=message):
            ScoreMod(mod, {"t": table})
        with pytest.raises(stof.InvalidArgument, match=message):
            stof.attention(q, k, v, score_mod=mod)
    with pytest.raises(stof.InvalidArgument, match="table 't' of .*got float64"):
        ScoreMod("score + t[k]", {"t": np.zeros(4)})
    with pytest.raises(stof.InvalidArgument, match="expected an array for table 't', got list"):
        ScoreMod("score + t[k]", {"t": [0.0]})
    plan = stof.plan(
        None,
        batch=1,
        num_heads=1,
        seq_q=4,
        head_dim=8,
        dtype="float32",
        score_mod=ScoreMod("score + t[k]", {"t": table}),
    )
    with pytest.raises(stof.InvalidArgument, match=r"score_tables: expected 1 .*\(t\), got 0"):
        plan.run(q, k, v)
    with pytest.raises(
        stof.InvalidArgument, match=r"expected t as float32 \[4\], got float32 \[3\]"
    ):
        plan.run(q, k, v, score_tables=(table[:3],))
    np.testing.assert_array_equal(plan.run(q, k, v, score_tables=(table,)), stof.attention(q, k, v))
