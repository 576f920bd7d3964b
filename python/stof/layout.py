"""Arrays [batch, seq, heads, head_dim] given for [batch, heads, seq, head_dim]: what shapes tell."""

from __future__ import annotations

import os
import sys
import warnings
from typing import Any

_HINT = "; if q, k and v are [batch, seq, heads, head_dim], pass q.transpose(1, 2) and so on"

# Models have up to 128 heads; prompts may be short.
_MOST_HEADS = 128
_TIMES_LONGER = 4
_FOLDER = os.path.dirname(os.path.abspath(__file__)) + os.sep
_warned = False


def hint(q: Any, k: Any) -> str:
    """For the end of an error about heads of these shapes: "" where the layout is likely right."""
    heads = k[2] > 0 and q[2] % k[2] == 0
    return _HINT if heads and max(q[1], k[1]) > max(q[2], k[2]) else ""


def hint_of_lengths(given: tuple[Any, ...], q: Any, k: Any) -> str:
    """For the end of an error about a mask made for `given` (queries, keys)."""
    return _HINT if tuple(given) == (q[1], k[1]) != (q[2], k[2]) else ""


def warn_of_many_heads(num_heads: int, seq_q: int, seq_kv: int) -> None:
    """Once, where a plan is made for far more heads than positions: nothing else would say it."""
    global _warned
    if _warned or num_heads <= max(_MOST_HEADS, _TIMES_LONGER * max(seq_q, seq_kv)):
        return
    _warned = True
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_FOLDER):
        level, frame = level + 1, frame.f_back
    warnings.warn(
        f"q: expected [batch, heads, seq, head_dim], got {num_heads} heads for {seq_q} queries and "
        f"{seq_kv} keys{_HINT}; said once",
        stacklevel=level,
    )
