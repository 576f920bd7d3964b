"""What mask_zoo.py and score_zoo.py are made of, and the smallest mask_mods."""

from typing import Callable, NamedTuple

import torch

from comparing import DEVICE


class Case(NamedTuple):
    """A function, with the extents that it needs: None is one for all."""

    mod: Callable
    batch: int | None
    heads: int | None
    q_len: int
    kv_len: int


def on_device(values, dtype=None) -> torch.Tensor:
    return torch.tensor(values, dtype=dtype, device=DEVICE)


def lengths_to_ids(lengths) -> torch.Tensor:
    return torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths)).to(DEVICE)


def random(*shape, seed=0) -> torch.Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE)


def causal_mod(b, h, q, kv):
    return q >= kv


def sliding_mod(window):
    def sliding(b, h, q_idx, kv_idx):
        return q_idx - kv_idx <= window

    return sliding


def document_mod(documents):
    return lambda b, h, q, kv: documents[q] == documents[kv]
