"""score_mods as people write them for FlexAttention. Each function of SCORES makes the captured
tensors on the tests' device and returns a Case."""

import math
from typing import Callable

import torch

from comparing import DEVICE
from zoo import Case, random

SCORES: dict[str, Callable[[], Case]] = {}


def score(make):
    SCORES[make.__name__] = make
    return make


@score
def identity():
    return Case(lambda score, b, h, q, kv: score, None, None, 33, 33)


@score
def scaled():
    return Case(lambda score, b, h, q, kv: score * 2 - 1, None, None, 33, 40)


@score
def causal_by_inf():
    return Case(
        lambda score, b, h, q, kv: torch.where(q >= kv, score, -float("inf")), None, None, 65, 65
    )


@score
def causal_by_filling():
    return Case(
        lambda score, b, h, q, kv: score.masked_fill(q < kv, float("-inf")), None, None, 40, 65
    )


@score
def hidden_by_a_table():
    keep = random(30, 30) > 0.5

    def mod(score, b, h, q, kv):
        return torch.where(keep[q, kv], score + 1, torch.tensor(float("-inf")))

    return Case(mod, None, None, 30, 30)


@score
def alibi():
    heads = 4
    slopes = torch.exp2(-torch.arange(1, heads + 1, device=DEVICE) * 8.0 / heads)
    return Case(lambda score, b, h, q, kv: score + slopes[h] * (kv - q), None, heads, 50, 50)


@score
def alibi_by_formula():
    heads = 4

    def mod(score, b, h, q, kv):
        scale = torch.exp2(-((h + 1) * 8.0 / heads))
        return score + scale * (q - kv)

    return Case(mod, None, heads, 50, 50)


@score
def softcap():
    return Case(lambda score, b, h, q, kv: 1.5 * torch.tanh(score / 1.5), None, None, 40, 40)


@score
def t5_bias():
    """Buckets of distances looked up in a table per head."""
    heads, buckets = 3, 8
    table = random(buckets, heads, seed=3)

    def mod(score, b, h, q, kv):
        distance = q - kv
        small = distance.abs()
        large = 4 + (torch.log(torch.maximum(small, torch.tensor(1)) / 4.0) / math.log(4) * 4).to(
            torch.int64
        )
        bucket = torch.where(small < 4, small, torch.minimum(large, torch.tensor(buckets - 1)))
        return score + table[bucket, h]

    return Case(mod, None, heads, 45, 45)


@score
def relative_bias():
    table = random(79, seed=4) * 2
    return Case(lambda score, b, h, q, kv: score + table[q - kv + 39], None, None, 40, 40)


@score
def swin_bias():
    """A table per head of 2-D offsets, as in windowed vision transformers."""
    side = 7
    table = random((2 * side - 1) ** 2, 2, seed=5)

    def mod(score, b, h, q, kv):
        dy = q // side - kv // side + side - 1
        dx = q % side - kv % side + side - 1
        return score + table[dy * (2 * side - 1) + dx, h]

    return Case(mod, None, 2, side * side, side * side)


@score
def full_bias():
    bias = random(2, 3, 25, 31, seed=6)
    return Case(lambda score, b, h, q, kv: score + bias[b, h, q, kv], 2, 3, 25, 31)


@score
def temperature():
    per_query = random(33, seed=7) + 0.5
    factor = torch.tensor(1.25, device=DEVICE)
    return Case(lambda score, b, h, q, kv: score * per_query[q] * factor, None, None, 33, 33)


@score
def distance_decay():
    return Case(
        lambda score, b, h, q, kv: score + torch.log(torch.sigmoid(-(q - kv).abs().float() / 8)),
        None,
        None,
        37,
        37,
    )


@score
def mixed_functions():
    def mod(score, b, h, q, kv):
        wave = torch.sin(q * 0.3) * torch.cos(kv * 0.2) + torch.exp(-((q - kv) ** 2) / 50.0)
        clipped = torch.clamp(score, -0.5, 0.75) + torch.relu(score).square() * 0.25
        parity = torch.where((q + kv) % 2 == 0, wave, torch.floor(score * 3) / 3)
        return clipped + parity + torch.rsqrt(kv + 1.0) - (q == kv) * 0.5

    return Case(mod, None, None, 29, 29)


@score
def window_then_cap():
    def mod(score, b, h, q, kv):
        capped = 2.0 * torch.tanh(score / 2.0)
        return torch.where((q - kv).abs() <= 6, capped, -math.inf)

    return Case(mod, None, None, 60, 60)
