"""Attention and masks written down plainly in NumPy, to compare stof with.

Everything is float64, one loop a head, no tiles and nothing of stof's.
"""

from __future__ import annotations

import numpy as np

#: Largest error of a whole output relative to its size, by element type: float32 differs by the order
#: of summation, the others by the rounding of the output.
TOLERANCE = {"float32": 3e-6, "float16": 1.5e-3, "bfloat16": 1.2e-2}


def attention(
    q,
    k,
    v,
    visible=None,
    *,
    scale=None,
    softcap=0.0,
    alibi=None,
    bias=None,
    sink=None,
    position_bias=None,
    score_mod=None,
    offset=0,
):
    """(out, lse), float64. visible: booleans broadcastable to [B, H, Sq, Sk]; offset: where query 0
    stands, for ALiBi and buckets; position_bias: (table, max_distance, bidirectional); score_mod: a
    function (score, b, h, q, k) of arrays."""
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    batch, heads, seq_q, width = q.shape
    seq_kv, share = k.shape[2], heads // k.shape[1] if k.shape[1] else 1
    scale = 1 / np.sqrt(width) if scale is None else scale
    visible = np.broadcast_to(True if visible is None else visible, (batch, heads, seq_q, seq_kv))
    out = np.zeros((batch, heads, seq_q, v.shape[3]))
    lse = np.full((batch, heads, seq_q), -np.inf)
    rows = np.arange(seq_q)[:, None] + offset
    distance = np.arange(seq_kv)[None, :] - rows
    for b in range(batch):
        for h in range(heads):
            scores = scale * q[b, h] @ k[b, h // share].T
            if softcap:
                scores = softcap * np.tanh(scores / softcap)
            if alibi is not None:
                scores = scores + float(alibi[h]) * distance
            if position_bias is not None:
                table, reach, both = position_bias
                scores = (
                    scores
                    + np.asarray(table, np.float64)[:, h][
                        buckets(distance, len(table), reach, both)
                    ]
                )
            if bias is not None:
                whole = np.broadcast_to(np.asarray(bias, np.float64), visible.shape)
                scores = scores + whole[b, h]
            if score_mod is not None:
                scores = score_mod(scores, b, h, rows, np.arange(seq_kv)[None, :])
            scores = np.where(visible[b, h], scores, -np.inf)
            for i in range(seq_q):
                seen = scores[i] > -np.inf
                if not seen.any():
                    continue
                logits = scores[i][seen]
                extra = [] if sink is None else [float(sink[h])]
                top = max(logits.max(), *extra) if extra else logits.max()
                weights = np.exp(logits - top)
                total = weights.sum() + sum(np.exp(x - top) for x in extra)
                out[b, h, i] = weights @ v[b, h // share][seen] / total
                lse[b, h, i] = top + np.log(total)
    return out, lse


def buckets(distance, number, reach, both):
    """T5's bucket of key - query."""
    back = np.zeros_like(distance)
    if both:
        number //= 2
        back = np.where(distance > 0, number, 0)
        far = np.abs(distance)
    else:
        far = -np.minimum(distance, 0)
    exact = number // 2
    # float32 as T5's own code has it: a bucket's border may lie on a whole number.
    ratio = np.log(np.float32(np.maximum(far, exact)) / np.float32(exact)) / np.float32(
        np.log(reach / exact)
    )
    grown = exact + (ratio * np.float32(number - exact)).astype(np.int64)
    return back + np.where(far < exact, far, np.minimum(grown, number - 1))


def assert_close(got, expected, dtype="float32", what="out"):
    """Where both are finite the worst difference is within tolerance of the largest value, and the norm of
    all within that of the expected; elsewhere they are equal."""
    got = np.asarray(got, np.float64)
    expected = np.asarray(expected, np.float64)
    assert got.shape == expected.shape, (what, got.shape, expected.shape)
    finite = np.isfinite(expected)
    np.testing.assert_array_equal(np.isfinite(got), finite, err_msg=what)
    np.testing.assert_array_equal(got[~finite], expected[~finite], err_msg=what)
    size = max(1.0, np.abs(expected[finite]).max(initial=0.0))
    difference = got[finite] - expected[finite]
    worst = np.abs(difference).max(initial=0.0)
    assert worst <= TOLERANCE[dtype] * size, (what, worst, size)
    # One element may be off by that much, not all of them.
    norm = np.linalg.norm(expected[finite])
    assert np.linalg.norm(difference) <= TOLERANCE[dtype] * max(norm, size), (what, "as a whole")


def arrays(
    seed, batch, heads, seq_q, seq_kv, width, *, heads_kv=None, width_v=None, dtype=np.float32
):
    """q, k, v of normal numbers."""
    rng = np.random.default_rng(seed)
    shape_kv = (batch, heads_kv or heads, seq_kv)
    return (
        rng.standard_normal((batch, heads, seq_q, width)).astype(dtype),
        rng.standard_normal((*shape_kv, width)).astype(dtype),
        rng.standard_normal((*shape_kv, width_v or width)).astype(dtype),
    )


def dense(rule, seq_q, seq_kv=None, *, batch=1, heads=1, offset=0):
    """Booleans [batch, heads, Sq, Sk] of rule(b, h, q, k), asked for every pair."""
    seq_kv = seq_q if seq_kv is None else seq_kv
    return np.array(
        [
            [
                [[bool(rule(b, h, q + offset, k)) for k in range(seq_kv)] for q in range(seq_q)]
                for h in range(heads)
            ]
            for b in range(batch)
        ]
    ).reshape(batch, heads, seq_q, seq_kv)
