"""score_mods that have no expression: attention computed by torch, some rows of queries at a
time."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import torch

from ...errors import InvalidArgument, StofError, Unsupported
from . import evaluation
from .block_lists import block_maps
from .block_mask import FormulaBlockMask
from .evaluation import as_result, check_visible, explain_failure, over_pairs
from .failures import warn_user
from .resolving import Resolver, Shape, check_extents


@dataclasses.dataclass(frozen=True)
class _Entries:
    """Batch entries and heads that are computed together, and how many rows of them at a time."""

    batch: range
    heads: range
    num_rows: int


def _entries(shape: Shape, width: int) -> Iterator[_Entries]:
    """So that neither the scores nor k and v, `width` elements a key, exceed _CHUNK_PAIRS elements
    much, where one row of one head does not."""
    limit, kv_len = evaluation._CHUNK_PAIRS, shape.kv_len
    num_rows = max(1, min(shape.q_len, limit // kv_len))
    num_entries = max(1, limit // (kv_len * max(num_rows, width)))
    num_heads = min(shape.heads, num_entries)
    num_batch = max(1, num_entries // num_heads) if num_heads == shape.heads else 1
    for b in range(0, shape.batch, num_batch):
        batch = range(b, min(b + num_batch, shape.batch))
        for h in range(0, shape.heads, num_heads):
            yield _Entries(batch, range(h, min(h + num_heads, shape.heads)), num_rows)


def _indices(numbers: range, device: torch.device) -> torch.Tensor:
    return torch.arange(numbers.start, numbers.stop, device=device)


def _call(function: Any, name: str, why: str, *arguments: Any) -> Any:
    """A user's function for all pairs. The last four arguments are vectors of indices."""
    from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex

    shape = tuple(len(x) for x in arguments[-4:])
    # Copies: a function may write to its indices, which serve other rows and functions too.
    arguments = (*arguments[:-4], *(x.clone() for x in arguments[-4:]))
    try:
        with TransformGetItemToIndex():
            device = arguments[-1].device
            single = lambda *one: as_result(function(*one), device)  # noqa: E731
            result = over_pairs(single, len(arguments) - 4)(*arguments)
        if name == "mask_mod":
            check_visible(result, shape)
        elif result.shape != shape or result.is_complex():
            raise TypeError(
                f"the result is {result.dtype} of shape {tuple(result.shape[4:])} for one pair; "
                "expected a real number of shape ()"
            )
    except (StofError, torch.cuda.OutOfMemoryError):
        raise
    except Exception as error:  # whatever the user's function raises
        kind = InvalidArgument if name == "mask_mod" else Unsupported
        raise kind(explain_failure(error, why, function, name)) from error
    return result


class _Visible:
    """What a BlockMask lets through, evaluated on its resolver's device."""

    def __init__(self, block_mask: Any, resolver: Resolver, shape: Shape) -> None:
        self._mask_mod = block_mask.mask_mod
        traced, self._why = resolver.try_trace(self._mask_mod)
        if traced is not None:
            check_extents(traced, shape, "mask_mod")
        self._device = resolver.device
        self._maps = None
        if not isinstance(block_mask, FormulaBlockMask):
            self._maps = block_maps(block_mask, shape.q_len, shape.kv_len, resolver.device)

    def pairs(self, *indices: torch.Tensor) -> torch.Tensor:
        indices = tuple(x.to(self._device) for x in indices)
        with torch.no_grad():
            visible = _call(self._mask_mod, "mask_mod", self._why, *indices)
        return visible if self._maps is None else self._maps.combine(visible, *indices)


def _scores(score_mod: Any, why: str, scores: torch.Tensor, *indices: torch.Tensor) -> torch.Tensor:
    modified = _call(score_mod, "score_mod", why, scores, *indices)
    if modified.requires_grad:
        raise Unsupported(
            "score_mod: expected captured tensors without gradients because stof computes no "
            "backward pass, got a result with requires_grad; call under torch.no_grad(), or detach "
            "what it captures"
        )
    return modified.to(torch.float32)


def _extremes(values: torch.Tensor) -> dict[float, torch.Tensor]:
    """Where values are NaN or infinite, as 0 and 1; empty where all are known to be finite."""
    if values.device.type == "cpu" and bool(values.isfinite().all()):
        return {}  # elsewhere asking waits for the device, which no CUDA graph can record
    where = {torch.nan: values.isnan(), torch.inf: values == torch.inf}
    where[-torch.inf] = values == -torch.inf
    return {number: found.to(torch.float32) for number, found in where.items()}


def _weighted(
    weights: torch.Tensor,
    scores: torch.Tensor,
    values: torch.Tensor,
    extremes: dict[float, torch.Tensor],
) -> torch.Tensor:
    """weights @ values, where the values of keys that are hidden, their score -inf, count for
    nothing: 0 * NaN is NaN. Those that are seen count however small their weight has become."""
    if not extremes:
        return weights @ values
    result = weights @ values.nan_to_num(0, 0, 0)
    seen = (scores != -torch.inf).to(torch.float32)
    for number, places in extremes.items():
        met = seen @ places
        result = result + torch.zeros_like(met).masked_fill(met > 0, number)
    return result


def attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    score_mod: Any,
    why: str,
    block_mask: Any,
    resolver: Resolver | None,
    scale: float | None,
    shape: Shape,
) -> tuple[torch.Tensor, torch.Tensor]:
    """(out, lse) with a score_mod that has no expression, for the reason `why`. `resolver` is that
    of block_mask, or both are None.

    The operands have been checked. Computes in float32. Memory beside the results: some arrays of
    evaluation._CHUNK_PAIRS elements.
    """
    device, width = query.device, query.shape[3] + value.shape[3]
    slow = (
        f"score_mod {getattr(score_mod, '__name__', repr(score_mod))!r} cannot be traced: {why}. "
        f"Attention is computed by torch for all {shape.q_len} x {shape.kv_len} pairs instead, some "
        "rows at a time: the result is the same, many times slower"
    )
    out = query.new_zeros(shape.batch, shape.heads, shape.q_len, value.shape[3])
    lse = query.new_full((shape.batch, shape.heads, shape.q_len), -torch.inf, dtype=torch.float32)
    if out.numel() == 0 or shape.kv_len == 0:
        warn_user(slow)
        return out, lse
    query, key, value = query.detach(), key.detach(), value.detach()
    visible = None if resolver is None else _Visible(block_mask, resolver, shape)
    factor = query.shape[3] ** -0.5 if scale is None else scale
    group = shape.heads // key.shape[1]
    k = _indices(range(shape.kv_len), device)
    with torch.autocast(device.type, enabled=False):
        for entries in _entries(shape, width):
            b, h = _indices(entries.batch, device), _indices(entries.heads, device)
            of_batch = slice(entries.batch.start, entries.batch.stop)
            of_heads = slice(entries.heads.start, entries.heads.stop)
            keys, values = (
                x[of_batch].index_select(1, h // group).to(torch.float32) for x in (key, value)
            )
            extremes = _extremes(values)
            for start in range(0, shape.q_len, entries.num_rows):
                rows = range(start, min(start + entries.num_rows, shape.q_len))
                place = of_batch, of_heads, slice(rows.start, rows.stop)
                indices = (b, h, _indices(rows, device), k)
                scores = query[place].to(torch.float32) @ keys.transpose(2, 3) * factor
                scores = _scores(score_mod, why, scores, *indices)
                if slow:  # what torch cannot run either is an error, without a warning before
                    warn_user(slow)
                    slow = ""
                if visible is not None:
                    scores = scores.masked_fill(~visible.pairs(*indices).to(device), -torch.inf)
                most = scores.amax(-1)
                seen = most != -torch.inf  # NaN is passed on
                most = most.masked_fill(~seen, 0)
                weights = torch.exp(scores - most[..., None])
                total = weights.sum(-1)
                rows_out = _weighted(weights, scores, values, extremes) / total[..., None]
                out[place] = rows_out.masked_fill(~seen[..., None], 0).to(out.dtype)
                lse[place] = (most + torch.log(total)).masked_fill(~seen, -torch.inf)
    return out, lse
