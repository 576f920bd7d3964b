"""Functions that write to tensors in place: the write counts, or is refused as by torch."""

import pytest
import torch

from comparing import DEVICE, assert_close
from flexing import pairs, qkv, torch_flex_attention, torch_pairs
from stof import InvalidArgument
from stof.compat.flex import TraceWarning, and_masks, create_block_mask, flex_attention
from zoo import Case, causal_mod, on_device

pytestmark = pytest.mark.filterwarnings("ignore:There is a performance drop")  # of torch.vmap's

evaluated = pytest.warns(TraceWarning)
CASE = Case(causal_mod, None, None, 20, 20)
factor, base = on_device(1.5), on_device(5)

WRITES = {
    name: getattr(torch, name)
    for name in "neg_ relu_ abs_ sigmoid_ exp_ square_ tanh_ sin_ floor_ negative_".split()
}
WRITES |= {
    "clamp_": lambda s: torch.clamp_(s, min=0.0),
    "mul_": lambda s: s.mul_(3.0),
    "Tensor.mul_": lambda s: torch.Tensor.mul_(s, 3.0),
    "Tensor.fill_": lambda s: torch.Tensor.fill_(s, 0.5),
    "aten.neg_": lambda s: torch.ops.aten.neg_(s),
    "relu": lambda s: torch.nn.functional.relu(s, inplace=True),
    "view": lambda s: s.detach().neg_(),
}


def check_score(mod):
    q, k, v = qkv(CASE)
    expected, _ = torch_flex_attention(q, k, v, mod, causal_mod)
    block_mask = create_block_mask(*CASE, device=DEVICE)
    assert_close(flex_attention(q, k, v, mod, block_mask), expected)


def check_mask(mod):
    block_mask = create_block_mask(mod, None, None, 20, 20, device=DEVICE)
    assert torch.equal(pairs(block_mask), torch_pairs(mod, None, None, 20, 20))


@pytest.mark.parametrize("name", WRITES)
def test_a_score_that_is_written(name):
    def mod(s, b, h, q, kv):
        s = s * 1.0
        other = s
        WRITES[name](s)
        return other

    with evaluated:
        check_score(mod)


@pytest.mark.parametrize(
    "write",
    [
        lambda w: w.mul_(torch.tensor(2.0, device=DEVICE)),
        lambda w: torch.add(w, 1.0, out=w),
        lambda w: torch.Tensor.fill_(w, torch.tensor(2.0, device=DEVICE)),
    ],
)
@pytest.mark.filterwarnings("ignore::stof.compat.flex.TraceWarning")
def test_a_copy_that_is_written(write):
    def mod(s, b, h, q, kv):
        w = factor.clone()
        write(w)
        return s * w

    check_score(mod)


@pytest.mark.parametrize(
    "write",
    [
        lambda w: torch.neg_(w),
        lambda w: torch.nn.functional.hardtanh(w, 0.0, 1.0, True),
        lambda w: torch.nn.functional.hardtanh(w, 0.0, 1.0, inplace=True),
        lambda w: torch.unsqueeze(w, 0).add_(1),
    ],
)
def test_a_constant_that_is_written(write):
    def mod(s, b, h, q, kv):
        w = torch.tensor(1.5, device=DEVICE)
        write(w)
        return s * w

    with evaluated:
        check_score(mod)
    with evaluated, torch.inference_mode():
        check_score(mod)


def test_a_mask_of_a_copy_that_is_written():
    def mod(b, h, q, kv):
        x = base.clone()
        x.add_(torch.tensor(3, device=DEVICE))
        return x >= kv

    with evaluated:
        check_mask(mod)


def _all(x, q, kv):
    x = torch.tensor(True, device=DEVICE).clone()
    return x.logical_and_(q >= kv)


@pytest.mark.parametrize(
    "write",
    [
        lambda x, q, kv: x.add_(q),
        lambda x, q, kv: x.clamp_(max=q),
        lambda x, q, kv: x.masked_fill_(q > 3, 0),
        lambda x, q, kv: x.copy_(q),
        _all,
    ],
)
def test_what_vmap_refuses(write):
    def mod(b, h, q, kv):
        x = base.clone()
        return write(x, q, kv) >= kv

    with pytest.raises(InvalidArgument, match="torch.vmap"):
        create_block_mask(mod, None, None, 20, 20, device=DEVICE)


# --- += and the like ---


def by_name(b, h, q, kv):
    q += 1
    return q >= kv


def by_copy(b, h, q, kv):
    before = q.clone()
    q += 1
    return (q >= kv) & (before != kv)


@pytest.mark.filterwarnings("error::stof.compat.flex.TraceWarning")
def test_augmented_assignment_is_traced():
    check_mask(by_name)
    check_mask(by_copy)


def by_alias(b, h, q, kv):
    other = q
    q += 1
    return other >= kv


def by_conversion(b, h, q, kv):
    other = q.long().detach()
    q *= 2
    return other >= kv


def by_the_next(b, h, q, kv):
    """and_masks() hands the same indices to all."""
    return and_masks(by_name, causal_mod)(b, h, q, kv)


@pytest.mark.parametrize("mod", [by_alias, by_conversion, by_the_next])
def test_augmented_assignment_seen_by_another_name(mod):
    with evaluated:
        check_mask(mod)


def test_augmented_assignment_keeps_the_type():
    def to_float(b, h, q, kv):
        q += 0.5
        return q >= kv

    with pytest.raises(InvalidArgument, match="can't be cast"):
        create_block_mask(to_float, None, None, 20, 20, device=DEVICE)

    def to_narrow(b, h, q, kv):
        narrow = q.to(torch.int8)
        narrow += 100 * (q + 1)
        return narrow >= kv

    with evaluated:
        check_mask(to_narrow)


def test_indices_that_a_score_mod_writes():
    """They are other rows' and the mask's too."""

    def mod(s, b, h, q, kv):
        kv.add_(1)
        return s + torch.logit(kv / 100.0)

    with evaluated:
        check_score(mod)
