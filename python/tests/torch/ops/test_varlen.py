"""Packed sequences while torch records operators."""

import torch

import stof
from comparing import DEVICE, assert_close, randn, reference
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
    torch.library.opcheck(
        operators.varlen_attention,
        (*rows, starts, starts, "causal", "top_left", None, 0.0, None, None, None, 0, True, True),
    )
