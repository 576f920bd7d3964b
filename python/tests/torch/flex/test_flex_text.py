"""The expressions that functions become, and why others become none."""

import functools

import numpy
import pytest
import torch
from torch.nn.attention.flex_attention import and_masks, noop_mask, or_masks

from comparing import DEVICE, randn
from evaluating import evaluate
from flexing import torch_pairs, torch_scores
from stof.compat.flex.failures import CannotTrace, reason
from stof.compat.flex.tables import Memo
from stof.compat.flex.tracing import trace_mask, trace_score
from mask_zoo import MASKS
from score_zoo import SCORES
from zoo import on_device

PLACE = torch.device(DEVICE)
ids = on_device([0, 0, 1, 1])
table = on_device([[True, False], [True, True]])
weights = torch.rand(4, device=DEVICE)
offset = on_device(3)


def causal(b, h, q, kv):
    return q >= kv


def window(b, h, q, kv, size):
    return q - kv < size


MASK_TEXTS = [
    (causal, "q >= k"),
    (functools.partial(window, size=4), "q - k < 4"),
    (lambda b, h, q, kv: ids[q] == ids[kv], "ids[q] == ids[k]"),
    (lambda b, h, q, kv: table[b][h], "table[b, h]"),
    (lambda b, h, q, kv: q + offset >= kv, "q + 3 >= k"),
    (lambda b, h, q, kv: 3 < q, "q > 3"),
    (lambda b, h, q, kv: kv < 2.5, "k < 3"),
    (lambda b, h, q, kv: (q - (kv - h)) % 3 == -(q * -2), "(q - (k - h)) % 3 == -(q * -2)"),
    (lambda b, h, q, kv: (q + kv) * h // (b + 1) > 0, "(q + k) * h // (b + 1) > 0"),
    (lambda b, h, q, kv: ~(q > 1) | (kv == h) & True, "~(q > 1) | (k == h)"),
    (lambda b, h, q, kv: (q > 1) + (kv > 1), "(q > 1) | (k > 1)"),
    (lambda b, h, q, kv: (q > 1) * (kv > 1), "(q > 1) & (k > 1)"),
    (lambda b, h, q, kv: q.bool(), "q != 0"),
    (lambda b, h, q, kv: (q - kv).abs().le(2), "abs(q - k) <= 2"),
    (lambda b, h, q, kv: q**2 > kv, "q ** 2 > k"),
    (lambda b, h, q, kv: torch.tensor(True), "True"),
    (lambda b, h, q, kv: (q > kv) & (torch.tensor(3) < 2.5), "False"),
    (lambda b, h, q, kv: torch.full((), 5, dtype=torch.int64) < kv, "k > 5"),
    (lambda b, h, q, kv: torch.ones((), dtype=torch.bool) & (q > kv), "q > k"),
    (lambda b, h, q, kv: torch.zeros([], dtype=torch.int64) + 1 > kv, "0 + 1 > k"),
    (noop_mask, "True"),
    (or_masks(noop_mask, causal), "True"),
    (and_masks(noop_mask, causal), "q >= k"),
    (or_masks(), "False"),
]


@pytest.mark.parametrize("mod, text", MASK_TEXTS, ids=[text for _, text in MASK_TEXTS])
def test_mask_text(mod, text):
    assert trace_mask(mod, PLACE, Memo()).text == text


SCORE_TEXTS = [
    (lambda s, b, h, q, kv: s, "score", None),
    (lambda s, b, h, q, kv: s * 2, "score * 2.0", None),
    (lambda s, b, h, q, kv: s + weights[h] * (kv - q), "score + weights[h] * float(k - q)", None),
    (lambda s, b, h, q, kv: s * offset, "score * float(offset[0])", None),
    (lambda s, b, h, q, kv: 2 * torch.tanh(s / 2), "2.0 * tanh(score / 2.0)", None),
    (lambda s, b, h, q, kv: torch.where(q >= kv, s, -float("inf")), "score", "q >= k"),
    (lambda s, b, h, q, kv: s.masked_fill(q < kv, -float("inf")), "score", "~(q < k)"),
    (
        lambda s, b, h, q, kv: torch.where(s > 0, s, -float("inf")),
        "where(score > 0.0, score, -inf)",
        None,
    ),
    (
        lambda s, b, h, q, kv: torch.where(ids[q] == ids[kv], s, -float("inf")),
        "where(ids[q] == ids[k], score, -inf)",
        None,
    ),
    (lambda s, b, h, q, kv: q, "float(q)", None),
    (lambda s, b, h, q, kv: q / kv, "float(q) / float(k)", None),
    (lambda s, b, h, q, kv: s.new_zeros(()) + (q > kv), "0.0 + float(q > k)", None),
]


@pytest.mark.parametrize(
    "mod, text, visible", SCORE_TEXTS, ids=[text for _, text, _ in SCORE_TEXTS]
)
def test_score_text(mod, text, visible):
    traced = trace_score(mod, PLACE, Memo())
    assert (traced.text, traced.visible) == (text, visible)


def in_place(b, h, q, kv):
    q += 1
    return q > kv


def test_augmented_assignment_is_no_change_in_place():
    assert trace_mask(in_place, PLACE, Memo()).text == "q + 1 > k"


kept = []


def keeps(b, h, q, kv):
    kept.append(q)
    return kept[0] > kv


REFUSED = [
    (lambda b, h, q, kv: q if q > kv else kv, "truth of a symbolic value"),
    (lambda b, h, q, kv: 0 < q < kv, "chained comparison"),
    (lambda b, h, q, kv: not q > kv, "truth of a symbolic value"),
    (lambda b, h, q, kv: q > int(kv), "int() of a symbolic value"),
    (lambda b, h, q, kv: [True, False][q], "used as an index"),
    (lambda b, h, q, kv: q / 2 > kv, "/ gives a float"),
    (lambda b, h, q, kv: q * 0.5 > kv, "floats in a mask"),
    (lambda b, h, q, kv: weights[q] > 0.5, "captured tensor of torch.float32"),
    (lambda b, h, q, kv: (ids == kv).any(), "shape (4,)"),
    (lambda b, h, q, kv: torch.erfinv(q) > kv, "torch.erfinv() has no expression"),
    (lambda b, h, q, kv: q.lgamma() > kv, "Tensor.lgamma() has no expression"),
    (lambda b, h, q, kv: q, "returns a boolean"),
    (lambda b, h, q, kv: ids == 0, "the result has shape (4,)"),
    (lambda b, h, q, kv: table[b], "of which 1 are not indexed"),
    (lambda b, h, q, kv: table[q:, 0], "slice with a symbolic bound"),
    (lambda b, h, q, kv: table[q > 1, 0], "indexed with a bool"),
    (lambda b, h, q, kv: q - 2**70 > 0, "does not fit into 64 bits"),
    (lambda b, h, q, kv: torch.where(q > kv), "with a condition alone"),
    (lambda b, h, q, kv: -(q > kv), "minus a boolean"),
    (lambda b, h, q, kv: q**kv > 1, "not a constant from 0 to 63"),
    (lambda b, h, q, kv: q.add_(1) > kv, "Tensor.add_() has no expression"),
    (lambda b, h, q, kv: torch.add(q, kv, out=q) > kv, "unexpected keyword argument 'out'"),
    (
        lambda b, h, q, kv: functools.reduce(lambda x, _: x * x + x, range(20), q) > 0,
        "longer than 65536 characters",
    ),
    (
        lambda b, h, q, kv: functools.reduce(lambda x, i: x | (kv == 3 * i), range(500), q > kv),
        "more than 900 operations",
    ),
]


@pytest.mark.parametrize("mod, why", REFUSED, ids=[why for _, why in REFUSED])
def test_why_a_mask_cannot_be_traced(mod, why):
    with pytest.raises(Exception) as caught:
        trace_mask(mod, PLACE, Memo())
    assert why in reason(caught.value)


def test_a_symbol_outlives_no_call():
    trace_mask(keeps, PLACE, Memo())
    with pytest.raises(CannotTrace, match="earlier call"):
        trace_mask(keeps, PLACE, Memo())


@pytest.mark.parametrize("name", [*MASKS, *SCORES])
def test_tracing_is_repeatable(name):
    make, trace = (MASKS[name], trace_mask) if name in MASKS else (SCORES[name], trace_score)
    mod, memo = make().mod, Memo()
    assert trace(mod, PLACE, memo).text == trace(mod, PLACE, memo).text


@pytest.mark.parametrize("name", MASKS)
def test_unchanged_tensors_are_known(name):
    """So that no mask is planned again, and no tensor on a GPU read again."""
    mod, memo = MASKS[name]().mod, Memo()
    first, second = trace_mask(mod, PLACE, memo), trace_mask(mod, PLACE, memo)
    fresh = {
        "transfusion",
        "vectors_joined_inside",
        "constants_of_torch",
    }  # these make new tensors in every call
    assert (first.key() == second.key()) or name in fresh


@pytest.mark.parametrize("name", MASKS)
def test_mask_texts_mean_what_the_functions_do(name):
    case = MASKS[name]()
    traced = trace_mask(case.mod, PLACE, Memo())
    extents = (case.batch or 1, case.heads or 1, case.q_len, case.kv_len)
    assert numpy.array_equal(evaluate(traced.text, traced.tables, *extents), torch_pairs(*case))


@pytest.mark.parametrize("name", SCORES)
def test_score_texts_mean_what_the_functions_do(name):
    case = SCORES[name]()
    traced = trace_score(case.mod, PLACE, Memo())
    extents = (case.batch or 1, case.heads or 1, case.q_len, case.kv_len)
    scores = randn(*extents, dtype=torch.float32)
    expected = torch_scores(case.mod, scores).cpu().numpy()
    got = evaluate(traced.text, traced.tables, *extents, score=scores.cpu().numpy())
    if traced.visible is not None:
        visible = evaluate(traced.visible, {}, *extents)
        got = numpy.where(visible, got, -numpy.inf)
    assert numpy.array_equal(numpy.isinf(got), numpy.isinf(expected))
    assert numpy.allclose(got, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_conversions_to_narrow_floats(dtype):
    """Expressions compute in float32: what would be rounded is refused, constants are rounded."""
    small = on_device([3, 5, 7])

    def text(mod):
        return trace_score(mod, PLACE, Memo()).text

    for rounds in (
        lambda score, b, h, q, kv: score.to(dtype),
        lambda score, b, h, q, kv: (score * 0.5).type(dtype) + score,
        lambda score, b, h, q, kv: score + q.to(dtype),
        lambda score, b, h, q, kv: score + small[h].to(dtype),
    ):
        with pytest.raises(CannotTrace, match=f"conversion to {dtype}, which rounds"):
            text(rounds)
    assert "float(" in text(lambda score, b, h, q, kv: score + (q > kv).to(dtype))
    assert "float(" in text(
        lambda score, b, h, q, kv: score + small[h].to(torch.int8).to(dtype) * 0
    )
    rounded = float(torch.tensor(0.1, dtype=dtype))
    assert str(numpy.float32(rounded))[:7] in text(
        lambda score, b, h, q, kv: score + torch.tensor(0.1, dtype=dtype)
    )
