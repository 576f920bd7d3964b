"""A call like the last one takes a quick way, which must see what changed around it."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

import stof
from comparing import DEVICE, DTYPE, assert_close, randn, reference

CAUSAL = torch.ones(33, 33, dtype=torch.bool).tril()


def qkv(dtype=DTYPE):
    return tuple(randn(2, 4, 33, 16, dtype=dtype, seed=i) for i in range(3))


@pytest.fixture(params=["attention", "run"])
def call(request):
    """A function of q, k, v that has been called before."""
    if request.param == "attention":
        mask = stof.masks.causal()

        def function(q, k, v):
            return stof.attention(q, k, v, mask)

    else:
        function = stof.plan(
            "causal", batch=2, num_heads=4, seq_q=33, head_dim=16, dtype=DTYPE, device=DEVICE
        ).run
    for _ in range(3):
        assert_close(function(*qkv()), reference(*qkv(), CAUSAL)[0])
    return function


@pytest.mark.parametrize("which", range(3))
def test_gradients(call, which):
    operands = list(qkv())
    operands[which].requires_grad_()
    with pytest.raises(stof.Unsupported, match="no backward pass"):
        call(*operands)
    with torch.no_grad():
        assert_close(call(*operands), reference(*qkv(), CAUSAL)[0])


def test_fake_tensors(call):
    with FakeTensorMode() as mode:
        fakes = [mode.from_tensor(x) for x in qkv()]
        assert call(*fakes).shape == (2, 4, 33, 16)


def test_meta_tensors(call):
    assert call(*(x.to("meta") for x in qkv())).device.type == "meta"


def test_dispatch_modes(call):
    names = []

    class Names(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            names.append(str(func))
            return func(*args, **(kwargs or {}))

    operands = qkv()
    with Names():
        out = call(*operands)
    assert any(name.startswith("stof.") for name in names)
    assert_close(out, reference(*operands, CAUSAL)[0])


def test_autocast():
    """Of attention(): a plan has a type of its own."""
    operands = qkv()
    assert stof.attention(*operands, "causal").dtype == DTYPE
    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        assert stof.attention(*operands, "causal").dtype == torch.bfloat16
    assert stof.attention(*operands, "causal").dtype == DTYPE


def test_other_strides_and_lengths(call):
    q, k, v = (x.transpose(1, 2).contiguous().transpose(1, 2) for x in qkv())
    assert_close(call(q, k, v), reference(q, k, v, CAUSAL)[0])
    with pytest.raises(stof.InvalidArgument, match="[kv]: expected"):
        call(q, k, v[:, :, :31])
