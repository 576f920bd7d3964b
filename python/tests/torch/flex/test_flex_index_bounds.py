"""Indices that run past captured tensors: refused where that is known, 0 is read where it is not."""

import numpy
import pytest
import torch

from comparing import DEVICE, ON_GPU, assert_close
from evaluating import evaluate
from flexing import qkv, torch_flex_attention
from stof import InvalidArgument
from stof.compat.flex import create_block_mask, flex_attention
from stof.compat.flex.index_bounds import bounds_of_index
from zoo import Case, on_device, random

SHAPE = (2, 3, 11, 7)

KNOWN = [
    "q", "k - q", "q - k + 5", "-q", "(q - k) * 2 + h", "abs(q - k)", "abs(q - 20)", "abs(k - 3) - 9",
    "min(q - k, 3)", "max(min(q - k, 3), -2) + 2", "q // 4", "(q - k) // 3", "q % 4", "(q + 2) % 9",
    "(q - k) % 5", "k % 3 + 4 * (h % 2)", "(q + 6) % 8", "q * 3 // 2", "7 * b - h * 2", "(q - k) * h",
    "-(k // 2) % 4", "q * q", "q - q", "where(q > k, q, k)", "q & 3", "q * 2 % 3", "q << 1",
    "k * 3 % 11", "(k >> 1) + 1", "int(float(q))", "int(float(k) * 0.7)", "int(float(q) / 3.0)",
    "q ** 2 - k", "~q | k ^ 5", "where(k == 3, 1, 0) * 11", "(q + 128 & 255) - 128", "q // (k + 1)",
]  # fmt: skip
UNKNOWN = ["t[q]", "q // k", "q % k", "q << k - 1", "int(float(q) / float(k))", "float(q)", "q +"]


@pytest.mark.parametrize("text", KNOWN)
def test_bounds_are_those_of_all_pairs(text):
    values = evaluate(text, {}, *SHAPE)
    assert bounds_of_index(text, *SHAPE) == (numpy.min(values), numpy.max(values))


@pytest.mark.parametrize("text", UNKNOWN)
def test_not_known(text):
    assert bounds_of_index(text, *SHAPE) is None
    assert bounds_of_index("q", 1, 1, 0, 5) is None
    assert bounds_of_index("q & k", 1, 1, 1 << 11, 1 << 10) is None


CASES = {
    "distance": (lambda t, q, kv: t[q - kv + 5], 32, "from -27 to 26 .* got q - k \\+ 5"),
    "abs": (lambda t, q, kv: t[(q - kv).abs()], 31, "runs from 0 to 31"),
    "multiple": (lambda t, q, kv: t[kv * 3 % 20], 19, "runs from 0 to 19"),
    "shift": (lambda t, q, kv: t[(kv >> 1) + 1], 16, "runs from 1 to 16"),
    "square": (lambda t, q, kv: t[q * q % 25], 24, "runs from 0 to 24"),
    "half": (lambda t, q, kv: t[kv // 2], 15, "got k // 2, which runs from 0 to 15"),
}


@pytest.mark.parametrize("name", CASES)
def test_what_torch_refuses_is_refused(name):
    read, needed, message = CASES[name]
    q, k, v = qkv(Case(None, None, None, 32, 32))
    long, short = random(64), random(needed if name != "distance" else 27)
    mod = lambda t: lambda s, b, h, q, kv: s + read(t, q, kv)  # noqa: E731
    assert_close(flex_attention(q, k, v, mod(long)), torch_flex_attention(q, k, v, mod(long))[0])
    with pytest.raises(InvalidArgument, match=f"score_mod: expected an index .*{message}"):
        flex_attention(q, k, v, mod(short))
    seen = short > 0
    with pytest.raises(InvalidArgument, match=f"mask_mod: expected an index .*{message}"):
        mask_mod = lambda b, h, q, kv: read(seen, q, kv)  # noqa: E731
        block_mask = create_block_mask(mask_mod, None, None, 32, 32, device=DEVICE)
        flex_attention(q, k, v, block_mask=block_mask)
    if not ON_GPU:  # where torch stops the device for good
        with pytest.raises(IndexError):
            torch_flex_attention(q, k, v, mod(short))


def test_where_it_is_not_known_zero_is_read():
    """Indices out of a captured tensor. torch raises IndexError on the CPU, and stops a GPU."""
    bias, place = random(10), on_device([0, 3, 10, 9, 200, -1, -10, -11])
    q, k, v = qkv(Case(None, None, None, 8, 8))
    out = flex_attention(q, k, v, lambda s, b, h, q, kv: s + bias[place[kv]])
    read = torch.where((place >= -10) & (place < 10), bias[place.clamp(-10, 9)], 0.0)
    expected, _ = torch_flex_attention(q, k, v, lambda s, b, h, q, kv: s + read[kv])
    assert_close(out, expected)


def test_tables_of_16_bits_are_computed_with_in_float32():
    """As torch's compiled kernels do; its eager function rounds every step to the type."""
    table = random(30).to(torch.bfloat16)
    q, k, v = qkv(Case(None, None, None, 30, 30))
    mod = lambda t: lambda s, b, h, q, kv: s + (t[q] * t[kv] + t[kv] * 0.1)  # noqa: E731
    expected, _ = torch_flex_attention(q, k, v, mod(table.float()))
    assert_close(flex_attention(q, k, v, mod(table)), expected)
