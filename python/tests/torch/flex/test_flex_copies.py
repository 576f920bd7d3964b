"""Copies of block masks that have been used: plans and locks stay behind."""

import copy
import io
import pickle

import pytest
import torch

from comparing import DEVICE, assert_close
from flexing import pairs, qkv
from stof.compat.flex import create_block_mask, flex_attention
from zoo import Case, causal_mod, on_device, random

pytestmark = pytest.mark.filterwarnings("ignore::stof.compat.flex.TraceWarning")

weights = random(4, 45, seed=8)


def evaluated_mod(b, h, q, kv):
    return weights[h, kv] > 0.4


class Windowed:
    def __init__(self):
        self.window = on_device(3)

    def __call__(self, b, h, q, kv):
        return (q - kv).abs() <= self.window


class Holder(torch.nn.Module):
    def __init__(self, block_mask):
        super().__init__()
        self.block_mask = block_mask


def saved(block_mask):
    file = io.BytesIO()
    torch.save(block_mask, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


COPIES = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda block_mask: pickle.loads(pickle.dumps(block_mask)),
    "save": saved,
    "module": lambda block_mask: copy.deepcopy(Holder(block_mask)).block_mask,
}


@pytest.mark.parametrize("lists", [False, True])
@pytest.mark.parametrize("mod", [causal_mod, evaluated_mod, Windowed()])
@pytest.mark.parametrize("name", COPIES)
def test_a_copy_gives_the_same(name, mod, lists):
    case = Case(mod, None, 4, 45, 45)
    q, k, v = qkv(case)
    block_mask = create_block_mask(*case, device=DEVICE, BLOCK_SIZE=16)
    expected = flex_attention(q, k, v, block_mask=block_mask)
    if lists:
        block_mask.kv_num_blocks
    made = COPIES[name](block_mask)
    assert type(made) is type(block_mask) and made.shape == block_mask.shape
    assert_close(flex_attention(q, k, v, block_mask=made), expected)
    assert torch.equal(made.kv_indices, block_mask.kv_indices)
    assert_close(flex_attention(q, k, v, block_mask=block_mask), expected)


def test_a_copy_has_tensors_of_its_own():
    windowed = Windowed()
    block_mask = create_block_mask(windowed, None, None, 30, 30, device=DEVICE)
    before = pairs(block_mask)
    made = copy.deepcopy(block_mask)
    windowed.window.fill_(7)
    assert torch.equal(pairs(made), before)
    assert not torch.equal(pairs(block_mask), before)
