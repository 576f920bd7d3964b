"""The masks that operators name: found, shifted and joined once, and kept for the calls to come.

A plan is found by its mask object, so the same description must give the same object every time.
"""

from __future__ import annotations

import hashlib
import itertools
from collections import OrderedDict

import torch

from .. import identity, masks
from ..cache import MAX_PLANS
from ..errors import InvalidArgument, Unsupported
from ..latest import Latest
from ..locks import Locked

# As many as stof.attention keeps plans. A step of decoding uses a few for each kind of layer.
_masks: Latest[masks.Mask] = Latest(MAX_PLANS)


def mask_of(text: masks.Mask | str | None) -> masks.Mask | None:
    """The mask of a text or a name; a mask and None are themselves."""
    if text is None or isinstance(text, masks.Mask):
        return text
    if identity.is_name(text):
        return identity.find(text, "mask")
    return _masks.get(("text", text), lambda: masks.parse(text))


def positioned(mask: masks.Mask, q_offset: int, kv_offset: int) -> masks.Mask:
    """The mask as a call sees it whose first query and key stand at these positions."""
    if not q_offset and not kv_offset:
        return mask
    return _masks.get(
        ("shifted", mask, q_offset, kv_offset),
        lambda: masks.shifted(mask, dq=q_offset, dk=kv_offset),
    )


def joined(a: masks.Mask | None, b: masks.Mask | None) -> masks.Mask | None:
    """What both let through."""
    if a is None or b is None:
        return a if b is None else b
    return _masks.get(("and", a, b), lambda: a & b)


def _content(table: torch.Tensor) -> tuple:
    """Equal for equal tables. `table` is contiguous and on the CPU."""
    digest = hashlib.blake2b(table.numpy().tobytes(), digest_size=16).digest()
    return (tuple(table.shape), table.dtype, digest)


def read(table: torch.Tensor) -> torch.Tensor:
    if table.is_cuda and torch.cuda.is_current_stream_capturing():
        raise Unsupported(
            "mask: expected one whose tables need not be read while a CUDA graph is captured, "
            f"got a table of shape {list(table.shape)} on {table.device}; make the mask before "
            "the capture"
        )
    return table.detach().cpu().contiguous()


def mask_of_values(text: str, tables: dict[str, torch.Tensor]) -> masks.Mask:
    """predicate(text, **tables), the same object for equal tables. Waits for a GPU's tables."""
    here = {name: read(table) for name, table in tables.items()}
    content = tuple((name, *_content(table)) for name, table in here.items())
    return _masks.get(("predicate", text, content), lambda: masks.predicate(text, **here))


def mask_of_padding(visible: torch.Tensor) -> masks.Mask | None:
    """The mask of booleans [batch, seq_kv], true for keys that may be seen; None where all may.
    Waits for a GPU's tensor."""
    here = read(visible)
    if bool(here.all()):
        return None

    def make() -> masks.Mask:
        lengths = here.sum(-1)
        if bool((here == (torch.arange(here.shape[-1]) < lengths[:, None])).all()):
            return masks.key_lengths(lengths.tolist())
        return masks.dense(here[:, None, None, :])

    return _masks.get(("padding", *_content(here)), make)


# --- masks as tensors ---------------------------------------------------------------------------

_numbered: OrderedDict[int, masks.Mask] = OrderedDict()
_next_number = itertools.count()
_numbers = Locked()


def number_of(mask: masks.Mask) -> int:
    """A number for a mask that is a result of a graph, which holds tensors only. It is used before
    the graph ends; the last MAX_PLANS numbers are known."""
    with _numbers._lock:
        number = next(_next_number)
        _numbered[number] = mask
        while len(_numbered) > MAX_PLANS:
            _numbered.popitem(last=False)
        return number


def mask_of_number(number: int) -> masks.Mask:
    with _numbers._lock:
        found = _numbered.get(number)
    if found is None:
        raise InvalidArgument(
            f"bound: expected one of the last {MAX_PLANS} results of stof::mask_from_values in "
            f"this process, got {number}"
        )
    return found
