"""What the tests of this folder share: the device, element types with tolerances, an oracle."""

import os

import torch

DEVICE = os.environ.get("STOF_TEST_DEVICE", "cpu")
ON_GPU = DEVICE == "cuda"
#: GPU kernels take 16-bit operands.
DTYPES = (
    (torch.float16, torch.bfloat16) if ON_GPU else (torch.float32, torch.float16, torch.bfloat16)
)
DTYPE = DTYPES[0]
#: Largest difference per element type, relative to the largest element of the reference.
TOLERANCE = {torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}

TORCH = tuple(int(part) for part in torch.__version__.split(".")[:2])
#: Below it compiled code that raises is reported by the class of what it raises, without the message.
_TELLS_MESSAGES = (2, 11)


def when_compiled(message: str) -> str:
    """The words (a regular expression) of an error that torch.compile finds while it traces."""
    return message if TORCH >= _TELLS_MESSAGES else f"{message}|InvalidArgument|Unsupported"


def randn(*shape, dtype=DTYPE, seed=0):
    generator = torch.Generator().manual_seed(seed + sum(i * n for i, n in enumerate(shape, 1)))
    return torch.randn(*shape, generator=generator).to(DEVICE, dtype)


def reference(q, k, v, visible, scale=None, softcap=0.0, bias=None, sink=None):
    """Attention in float64, with booleans [.., seq_q, seq_kv]; (out, lse). Rows that see nothing
    give 0 and -inf."""
    groups = q.shape[1] // k.shape[1]
    q, k, v = (x.double() for x in (q, k, v))
    k, v = (x.repeat_interleave(groups, 1) for x in (k, v))
    logits = q @ k.transpose(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if softcap:
        logits = softcap * torch.tanh(logits / softcap)
    if bias is not None:
        logits = logits + bias.double()
    logits = logits.masked_fill(~visible.to(logits.device), float("-inf"))
    columns = logits
    if sink is not None:
        column = sink.double()[None, :, None, None].expand(*logits.shape[:3], 1)
        columns = torch.cat([logits, column], -1)
    lse = torch.logsumexp(columns, -1)
    weights = torch.exp(logits - lse[..., None].nan_to_num(neginf=0.0))
    weights = weights.masked_fill(torch.isneginf(logits), 0.0)
    seen = ~torch.isneginf(logits).all(-1)
    return (weights @ v) * seen[..., None], torch.where(seen, lse, float("-inf"))


def assert_close(got, expected, dtype=None, factor=1.0):
    """Infinities and NaN by value first, then the worst element, then the whole tensor's relative error."""
    got, expected = got.double().cpu(), expected.double().cpu()
    assert got.shape == expected.shape
    finite = torch.isfinite(expected)
    assert torch.equal(torch.isfinite(got), finite)
    torch.testing.assert_close(got[~finite], expected[~finite], rtol=0, atol=0, equal_nan=True)
    worst = float((got - expected)[finite].abs().max()) if bool(finite.any()) else 0.0
    largest = float(expected[finite].abs().max()) if bool(finite.any()) else 0.0
    allowed = factor * TOLERANCE[dtype or DTYPE] * max(1.0, largest)
    assert worst <= allowed, f"off by {worst}, allowed {allowed}"
    norm = float(torch.linalg.vector_norm(expected[finite]))
    whole = float(torch.linalg.vector_norm((got - expected)[finite]))
    allowed = factor * TOLERANCE[dtype or DTYPE] * max(norm, 1.0, largest)
    assert whole <= allowed, f"as a whole off by {whole}, allowed {allowed}"
