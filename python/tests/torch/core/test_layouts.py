"""Tensors whose elements do not lie in memory at strides are refused by name, whatever came before."""

import pytest
import stof
import torch
from stof.compat import flex

Q = torch.zeros(1, 2, 4, 8)
CAUSAL = stof.masks.causal()
PLAN = stof.plan(CAUSAL, batch=1, num_heads=2, seq_q=4, head_dim=8, dtype="float32")

TENSORS = {
    "mkldnn": lambda: Q.to_mkldnn(),
    "sparse": lambda: Q.to_sparse(),
    "sparse rows": lambda: Q[0, 0].to_sparse_csr(),
    "nested": lambda: torch.nested.nested_tensor([Q[0], Q[0]]),
    "quantized": lambda: torch.quantize_per_tensor(Q, 0.1, 0, torch.qint8),
    "complex": lambda: Q.to(torch.complex64).conj(),
}
CALLS = {
    "q": lambda x: stof.attention(x, Q, Q, CAUSAL),
    "k": lambda x: stof.attention(Q, x, Q, CAUSAL),
    "v": lambda x: stof.attention(Q, Q, x, CAUSAL),
    "mask": lambda x: stof.attention(Q, Q, Q, x),
    "bias": lambda x: stof.attention(Q, Q, Q, CAUSAL, bias=x),
    "position_bias": lambda x: stof.attention(
        Q, Q, Q, CAUSAL, position_bias=stof.PositionBias(table=x)
    ),
    "score": lambda x: stof.attention(
        Q, Q, Q, CAUSAL, score_mod=stof.ScoreMod("score + t[h]", {"t": x})
    ),
    "q of a plan": lambda x: PLAN.run(x, Q, Q),
    "k of a plan": lambda x: PLAN.run(Q, x, Q),
    "out of a plan": lambda x: PLAN.run(Q, Q, Q, out=x),
    "cu_seqlens_q": lambda x: stof.varlen_attention(Q[0], Q[0], Q[0], x),
    "lengths": lambda x: stof.masks.document(x),
    "q(uery)?": lambda x: flex.flex_attention(x, Q, Q),
    "k(ey)?": lambda x: flex.flex_attention(Q, x, Q),
    "scale": lambda x: flex.flex_attention(Q, Q, Q, scale=x),
}


@pytest.mark.parametrize("warm", (False, True))
@pytest.mark.parametrize("tensor", TENSORS)
def test_tensors_without_strides_are_refused(tensor, warm):
    """Each message begins with the argument, for which the pattern before " of " stands."""
    given = TENSORS[tensor]()
    for pattern, call in CALLS.items():
        if warm:
            stof.attention(Q, Q, Q, CAUSAL)
            PLAN.run(Q, Q, Q)
        else:
            stof.cache_clear()
        with pytest.raises(stof.StofError, match=rf"^{pattern.partition(' of ')[0]}"):
            call(given)


@pytest.mark.parametrize("device", (object(), "x", -1, [], 1.5))
def test_what_is_no_device_is_named(device):
    with pytest.raises(stof.InvalidArgument, match="device: expected a torch.device or its name"):
        flex.create_block_mask(lambda b, h, q, k: q >= k, 1, 1, 64, 64, device=device)


@pytest.mark.parametrize("return_aux", (object(), 3, True))
def test_what_is_no_aux_request_is_named(return_aux):
    with pytest.raises(stof.InvalidArgument, match="return_aux: expected None or an AuxRequest"):
        flex.flex_attention(Q, Q, Q, return_aux=return_aux)
