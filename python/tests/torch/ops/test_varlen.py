"""Packed sequences while torch records operators."""

import pytest
import torch
from torch.library import opcheck

import stof
from comparing import DEVICE, assert_close, randn, reference, when_compiled
from stof.torch_ops import operators


def test_varlen():
    rows, starts = 24, torch.tensor([0, 5, 5, 24], dtype=torch.int32, device=DEVICE)
    q, k, v = randn(rows, 4, 16), randn(rows, 4, 16, seed=1), randn(rows, 4, 16, seed=2)
    torch._dynamo.reset()
    run = torch.compile(
        lambda q, k, v, s: stof.varlen_attention(q, k, v, s, s, "causal"), fullgraph=True
    )
    own = stof.masks.causal() & stof.masks.document([5, 0, 19])
    expected, _ = reference(
        *(x.transpose(0, 1)[None] for x in (q, k, v)), torch.from_numpy(own.to_dense(rows))
    )
    assert_close(run(q, k, v, starts), expected[0].transpose(0, 1))


def test_opcheck_varlen():
    rows = [randn(9, 2, 16, seed=i) for i in range(3)]
    starts = torch.tensor([0, 4, 9], dtype=torch.int32, device=DEVICE)
    opcheck(
        operators.varlen_attention,
        (*rows, starts, starts, "causal", "top_left", None, 0.0, None, None, None, 0, True, True),
    )


@pytest.mark.parametrize("heads, enable_gqa", [(1, False), (3, True)])
def test_heads_that_differ_are_refused(heads, enable_gqa):
    q, k = randn(9, 4, 16), randn(9, heads, 16)
    starts = torch.tensor([0, 4, 9], dtype=torch.int32, device=DEVICE)

    def call(q, k):
        return stof.varlen_attention(q, k, k, starts, enable_gqa=enable_gqa)

    message = rf"k: expected .*got {heads} \(q \[9, 4, 16\]"
    torch._dynamo.reset()
    with pytest.raises(Exception, match=when_compiled("InvalidArgument.*k: expected ")):
        torch.compile(call, fullgraph=True)(q, k)
    with pytest.raises(stof.InvalidArgument, match=message):
        call(q, k)


def test_lengths_in_a_list_are_refused_by_name():
    q = randn(9, 4, 16)
    torch._dynamo.reset()
    message = when_compiled("cu_seqlens_q: expected a torch tensor.*got list")
    with pytest.raises(Exception, match=message):
        torch.compile(lambda q: stof.varlen_attention(q, q, q, [0, 4, 9]), fullgraph=True)(q)
