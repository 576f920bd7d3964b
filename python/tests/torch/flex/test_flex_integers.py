"""Integers narrower than 64 bits, which wrap in torch and have 64 bits in expressions."""

import pytest
import torch

from comparing import DEVICE
from evaluating import evaluate
from flexing import pairs, torch_pairs, torch_scores
from stof.compat.flex import create_block_mask
from stof.compat.flex.failures import CannotTrace
from stof.compat.flex.tables import Memo
from stof.compat.flex.tracing import trace_mask, trace_score
from zoo import Case, on_device

LENGTH = 40
DTYPES = [torch.uint8, torch.int8, torch.int16, torch.int32]
PLACE = torch.device(DEVICE)


def values(dtype, seed) -> torch.Tensor:
    """Of the whole range, its ends among them."""
    info = torch.iinfo(dtype)
    generator = torch.Generator().manual_seed(seed)
    made = torch.randint(info.min, info.max + 1, (LENGTH,), generator=generator)
    made[:4] = torch.tensor([info.min, info.max, 0, 1])
    return made[torch.randperm(LENGTH, generator=generator)].to(dtype).to(DEVICE)


# Of x = table[q_idx], y = other[kv_idx] and the index q.
OPERATIONS = {
    "add": lambda x, y, q: x + y,
    "subtract": lambda x, y, q: x - y,
    "add_numbers": lambda x, y, q: (x + 100) - (1 - y),
    "add_alpha": lambda x, y, q: torch.add(x, y, alpha=3),
    "multiply": lambda x, y, q: x * y,
    "negate": lambda x, y, q: -x + q,
    "abs_of_difference": lambda x, y, q: (x - y).abs(),
    "abs": lambda x, y, q: abs(x),
    "invert": lambda x, y, q: ~x,
    "shift": lambda x, y, q: (x << 3) + (y >> 2),
    "shift_out": lambda x, y, q: (x << 40) + (y << (q % 9).to(y.dtype)),
    "bits": lambda x, y, q: (x & y) + (x | 5) + (x ^ y),
    "power": lambda x, y, q: x**3 + y.square(),
    "floor_divide": lambda x, y, q: (x + y) // 7 + x // (y | 1),
    "remainder": lambda x, y, q: (x + y) % 7 + x % (y | 1),
    "divide_towards_zero": lambda x, y, q: torch.div(x + y, 3, rounding_mode="trunc"),
    "extremes": lambda x, y, q: torch.minimum(x, y) + torch.maximum(x, y) * 2,
    "clamp": lambda x, y, q: x.clamp(0, 9) * y,
    "where": lambda x, y, q: torch.where(x > y, x, 3) * y,
    "masked_fill": lambda x, y, q: x.masked_fill(x > y, 3) * y,
    "boolean": lambda x, y, q: (x > 3) + y,
    "sign": lambda x, y, q: torch.sign(x) * 100 + y,
    "constant": lambda x, y, q: x + torch.tensor(100) + y,
    "typed_constant": lambda x, y, q: x + torch.tensor(100, dtype=torch.int8),
    "zeros_like": lambda x, y, q: torch.ones_like(x) * 77 * y,
    "index": lambda x, y, q: (x + q) * y + q,
    "conversion": lambda x, y, q: (x.long() + y) * 1000,
    "index_as_int32": lambda x, y, q: q.int() * 100_000_000 + x,
    "narrowed": lambda x, y, q: (x.long() * 70_000).int() + (q * 1000).to(torch.uint8),
    "promoted": lambda x, y, q: x + (q % 5).to(torch.int16) * 9999,
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", OPERATIONS)
def test_arithmetic_wraps_as_torchs(name, dtype):
    operation, table, other = OPERATIONS[name], values(dtype, 1), values(dtype, 2)

    def result(q, kv):
        return operation(table[q], other[kv], q)

    mask_mods = (
        lambda b, h, q, kv: result(q, kv) > 0,
        lambda b, h, q, kv: result(q, kv).long() % 11 < 5,
    )
    for mod in mask_mods:
        case = Case(mod, None, None, LENGTH, LENGTH)
        trace_mask(mod, PLACE, Memo())  # it is not evaluated by torch
        assert torch.equal(pairs(create_block_mask(*case, device=DEVICE)), torch_pairs(*case))

    def score_mod(s, b, h, q, kv):
        return s + (result(q, kv).long() % 1009).float()

    traced = trace_score(score_mod, PLACE, Memo())
    scores = torch.zeros(1, 1, LENGTH, LENGTH, device=DEVICE)
    got = evaluate(traced.text, traced.tables, 1, 1, LENGTH, LENGTH, scores.cpu().numpy())
    assert torch.equal(torch.tensor(got), torch_scores(score_mod, scores).cpu())


@pytest.mark.parametrize("dtype", DTYPES)
def test_scalars_wrap_as_torchs(dtype):
    table, scalar = values(dtype, 1), torch.tensor(100, dtype=dtype, device=DEVICE)
    case = Case(lambda b, h, q, kv: scalar * table[q] > kv, None, None, LENGTH, LENGTH)
    block_mask = create_block_mask(*case, device=DEVICE)
    for value in (100, 3, 127):
        scalar.fill_(value)
        assert torch.equal(pairs(block_mask), torch_pairs(*case))


def text_of(mod):
    return trace_mask(mod, PLACE, Memo()).text


def test_what_cannot_wrap_stays_simple():
    ids = on_device([0, 0, 1, 5], torch.int32)
    mod = lambda b, h, q, kv: (ids[q] - ids[kv]).abs() <= 1
    assert text_of(mod) == "abs(ids[q] - ids[k]) <= 1"
    assert text_of(lambda b, h, q, kv: q.int() - kv.int() < 5) == "q - k < 5"
    assert text_of(lambda b, h, q, kv: q + ids[b] >= kv) == "q + ids[b] >= k"
    ids[0] = -(2**31)
    assert text_of(mod) != "abs(ids[q] - ids[k]) <= 1"


def test_values_may_come_to_wrap():
    ids = on_device([1] * LENGTH, torch.uint8)
    case = Case(lambda b, h, q, kv: ids[q] + ids[kv] > 100, None, None, LENGTH, LENGTH)
    block_mask = create_block_mask(*case, device=DEVICE)
    for value in (1, 60, 130):
        ids[5:20] = value
        assert torch.equal(pairs(block_mask), torch_pairs(*case))


@pytest.mark.parametrize(
    "operation",
    [
        lambda x: torch.where(x > 3, x, 300) > 5,
        lambda x: x // 300 > 0,
        lambda x: x % 300 > 0,
        lambda x: x.clamp(min=-1) > 0,
        lambda x: x < 300,
    ],
)
def test_numbers_beyond_a_type_are_not_traced(operation):
    table = on_device([0, 1, 2], torch.uint8)
    with pytest.raises(CannotTrace, match="beside a tensor of torch.uint8"):
        text_of(lambda b, h, q, kv: operation(table[q]))
