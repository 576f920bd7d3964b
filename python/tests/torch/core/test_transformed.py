"""Tensors that torch.func or forward-mode differentiation wraps, and memory that calls write."""

import pytest
import torch
from comparing import DEVICE, DTYPE, assert_close, randn, reference
from torch.autograd import forward_ad

import stof

SHAPE = (2, 4, 12, 8)
PLAN = dict(batch=2, num_heads=4, seq_q=12, head_dim=8, dtype=DTYPE, device=DEVICE)


def qkv():
    return tuple(randn(*SHAPE, seed=s) for s in range(3))


def calls():
    plan = stof.plan("causal", **PLAN)
    return [lambda q, k, v: stof.attention(q, k, v, "causal"), plan.run]


@pytest.mark.parametrize("name", "qkv")
@pytest.mark.parametrize("which", [0, 1])
def test_tangents_are_refused(name, which):
    call, operands = calls()[which], dict(zip("qkv", qkv()))
    call(**operands)  # the quick way is there
    with forward_ad.dual_level():
        dual = {**operands, name: forward_ad.make_dual(operands[name], operands[name])}
        with pytest.raises(stof.Unsupported, match=f"{name}: expected a tensor without a tangent"):
            call(**dual)
        with torch.no_grad(), pytest.raises(stof.Unsupported, match=f"{name}: .*tangent"):
            call(**dual)
        call(**operands)


@pytest.mark.parametrize("which", [0, 1])
def test_functions_of_torch_func_are_refused_by_name(which):
    call, (q, k, v) = calls()[which], qkv()
    call(q, k, v)
    with pytest.raises(stof.Unsupported, match="k: expected .*torch.vmap maps over"):
        torch.func.vmap(lambda k: call(q, k, v))(torch.stack([k, k]))
    for transform in (
        lambda f: torch.func.grad(lambda q: f(q).sum())(q),
        lambda f: torch.func.jvp(f, (q,), (q,)),
        lambda f: torch.func.vjp(f, q),
    ):
        with pytest.raises(stof.Unsupported, match="q: expected a tensor without derivatives"):
            transform(lambda q: call(q, k, v))
    with pytest.raises(stof.Unsupported, match="q: .*torch.vmap"):
        torch.func.vmap(lambda q, k, v: stof.attention(q, k, v, "causal"))(q, k, v)
    packed = q.transpose(1, 2).flatten(0, 1)
    with pytest.raises(stof.Unsupported, match="q: .*torch.vmap"):
        torch.func.vmap(lambda x: stof.varlen_attention(x, x, x, [0, 24]))(packed[None])


def test_what_a_transformation_does_not_wrap_is_computed():
    call, (q, k, v) = calls()[0], qkv()
    expected = call(q, k, v)
    got = torch.func.vmap(lambda x: call(q, k, v).sum() + x)(torch.zeros(2, device=DEVICE))
    assert_close(got, torch.stack([expected.sum()] * 2))


@pytest.mark.parametrize("name", ["alibi", "bias", "sink", "mask"])
def test_other_operands_are_refused_too(name):
    q, k, v = qkv()
    shapes = dict(alibi=(4,), bias=(12, 12), sink=(4,), mask=(12, 12))
    given = torch.zeros(shapes[name], device=DEVICE, dtype=torch.bool if name == "mask" else None)
    with pytest.raises(stof.Unsupported, match=f"{name}: expected .*torch.vmap"):
        torch.func.vmap(lambda x: stof.attention(q, k, v, **{name: x}))(given[None])


def test_memory_that_is_written_counts_as_changed():
    """So that autograd notices where a saved tensor was overwritten."""
    q, k, v = qkv()
    plan = stof.plan("causal", **PLAN, return_lse=True)
    out, lse = torch.empty_like(q), torch.empty(SHAPE[:3], device=DEVICE)
    versions = out._version, lse._version
    plan.run(q, k, v, out=out, lse=lse)
    assert (out._version, lse._version) == (versions[0] + 1, versions[1] + 1)
    assert q._version == 0
    expected, _ = reference(q, k, v, torch.ones(12, 12, dtype=torch.bool).tril())
    assert_close(out, expected)
    with torch.inference_mode():  # such tensors count nothing
        plan.run(q, k, v, out=torch.empty_like(q), lse=torch.empty(SHAPE[:3], device=DEVICE))
    with pytest.raises(stof.Unsupported, match="out: expected tensors without gradients"):
        plan.run(q, k, v, out=out.requires_grad_())


def test_two_masks_in_turn_are_found_without_the_cache(monkeypatch):
    stof.cache_clear()
    q, k, v = qkv()
    pair = stof.masks.causal(), stof.masks.window(2, 0)
    expected = [stof.attention(q, k, v, mask) for mask in pair]
    monkeypatch.setattr(stof.cache.plans, "get", None)
    for mask, one in zip(pair * 2, expected * 2):
        assert torch.equal(stof.attention(q, k, v, mask), one)
    assert stof.cache_info()[:2] == (4, 2)
    monkeypatch.undo()
    assert_close(stof.attention(q[:1], k[:1], v[:1], pair[0]), expected[0][:1])  # another shape
    stof.cache_clear()
