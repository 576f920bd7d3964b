"""Masked attention with NumPy alone, on any x86-64 machine, and what a sparse mask saves.

python examples/numpy_laptop.py [TOKENS]
"""

import sys
import time

import numpy as np
import stof
from stof import masks

tokens = int(sys.argv[1]) if len(sys.argv) > 1 else 4096
rng = np.random.default_rng(0)
q, k, v = (rng.standard_normal((1, 8, tokens, 64), dtype=np.float32) for _ in range(3))


def milliseconds(mask):
    stof.attention(q, k, v, mask)  # plans, and warms the caches up
    begun = time.perf_counter()
    stof.attention(q, k, v, mask)
    return 1000 * (time.perf_counter() - begun)


dense = milliseconds(None)
print(f"8 heads of {tokens} tokens: {dense:.1f} ms without a mask")
for name, mask in {
    "causal": masks.causal(),
    "sliding window": masks.causal() & masks.window(255, 0),
    "longformer": masks.longformer(128, 16),
}.items():
    took = milliseconds(mask)
    seen = mask.stats(tokens)["element_density"]
    print(f"{name:15} {took:8.1f} ms, {took / dense:6.1%} of that; sees {seen:.1%} of the pairs")

# The same by hand, on the first head and few tokens.
few = 64
mask = masks.causal() & masks.window(255, 0)
out = stof.attention(q[:, :1, :few], k[:, :1, :few], v[:, :1, :few], mask)
scores = q[0, 0, :few] @ k[0, 0, :few].T / 8
scores[~mask.to_dense(few)[0, 0]] = -np.inf
weights = np.exp(scores - scores.max(1, keepdims=True))
expected = weights / weights.sum(1, keepdims=True) @ v[0, 0, :few]
print(f"largest difference to NumPy by hand: {np.abs(out[0, 0] - expected).max():.1e}")
assert np.allclose(out[0, 0], expected, rtol=1e-4, atol=1e-5)
