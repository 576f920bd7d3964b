"""mask_mods as people write them for FlexAttention. Each function of MASKS makes the captured
tensors on the tests' device and returns a Case."""

import functools
from typing import Callable

import torch
from torch.nn.attention.flex_attention import and_masks, noop_mask, or_masks

from comparing import DEVICE, TORCH
from zoo import Case, causal_mod, document_mod, lengths_to_ids, on_device, random, sliding_mod

MASKS: dict[str, Callable[[], Case]] = {}


def mask(make):
    MASKS[make.__name__] = make
    return make


@mask
def everything():
    return Case(noop_mask, None, None, 17, 130)


@mask
def nothing():
    return Case(lambda b, h, q, kv: kv < 0, None, None, 17, 33)


@mask
def causal():
    return Case(causal_mod, None, None, 257, 257)


@mask
def causal_rectangular():
    return Case(causal_mod, None, None, 70, 131)


@mask
def sliding():
    return Case(and_masks(causal_mod, sliding_mod(16)), None, None, 129, 129)


@mask
def two_sided_window():
    return Case(lambda b, h, q, kv: (q - kv).abs() <= 9, None, None, 100, 100)


@mask
def prefix_lm():
    lengths = on_device([7, 0, 33])

    def prefix(b, h, q, kv):
        return kv < lengths[b]

    return Case(or_masks(prefix, causal_mod), 3, None, 65, 65)


@mask
def document():
    return Case(document_mod(lengths_to_ids([3, 50, 1, 46])), None, None, 100, 100)


@mask
def document_causal_per_batch():
    ids = torch.stack([lengths_to_ids([30, 34]), lengths_to_ids([64])])
    return Case(lambda b, h, q, kv: (ids[b, q] == ids[b][kv]) & (q >= kv), 2, None, 64, 64)


@mask
def document_from_offsets():
    """With positions inside of each document: what a packed batch's mask_mod looks like."""
    offsets = on_device([0, 13, 40, 90], torch.int32)
    lengths = offsets[1:] - offsets[:-1]
    document = torch.repeat_interleave(torch.arange(3, device=DEVICE), lengths)

    def inner(b, h, q, kv):
        return (q >= kv) & (q - kv < 20)

    def packed(b, h, q_idx, kv_idx):
        same = document[q_idx] == document[kv_idx]
        q_local = q_idx - offsets[document[q_idx]]
        kv_local = kv_idx - offsets[document[kv_idx]]
        return same & inner(b, h, q_local, kv_local)

    return Case(packed, None, None, 90, 90)


@mask
def dilated():
    return Case(
        lambda b, h, q, kv: ((q - kv).abs() <= 12) & ((q - kv) % 3 == 0), None, None, 97, 97
    )


@mask
def longformer():
    global_tokens = on_device([0, 1, 40])

    def mod(b, h, q, kv):
        near = torch.abs(q - kv) <= 8
        return near | torch.isin(q, global_tokens) | torch.isin(kv, global_tokens)

    return Case(mod, None, None, 96, 96)


@mask
def natten_1d():
    length, kernel = 60, 7

    def mod(b, h, q, kv):
        centre = q.clamp(kernel // 2, length - 1 - kernel // 2)
        return (centre - kv).abs() <= kernel // 2

    return Case(mod, None, None, length, length)


@mask
def natten_2d():
    width, height, kernel = 11, 9, 5

    def mod(b, h, q_idx, kv_idx):
        q_x, q_y = q_idx // width, q_idx % width
        kv_x, kv_y = kv_idx // width, kv_idx % width
        q_x = q_x.clamp(kernel // 2, (height - 1) - kernel // 2)
        q_y = torch.clamp(q_y, min=kernel // 2, max=(width - 1) - kernel // 2)
        return ((q_x - kv_x).abs() <= kernel // 2) & ((q_y - kv_y).abs() <= kernel // 2)

    return Case(mod, None, None, width * height, width * height)


@mask
def lookup():
    table = random(50, 61) > 0.6
    return Case(lambda b, h, q, kv: table[q, kv], None, None, 50, 61)


@mask
def lookup_per_batch_and_head():
    table = random(2, 3, 33, 40) > 0.5
    return Case(lambda b, h, q, kv: table[b, h, q, kv], 2, 3, 33, 40)


@mask
def head_dependent():
    return Case(lambda b, h, q, kv: (q - kv).abs() <= (h + 1) * 4, None, 4, 65, 65)


@mask
def head_choice():
    streaming = on_device([True, False, True])
    return Case(
        lambda b, h, q, kv: torch.where(streaming[h], (q - kv < 8) | (kv < 4), q >= kv) & (q >= kv),
        None,
        3,
        80,
        80,
    )


@mask
def key_padding():
    keep = on_device([[True] * 20 + [False] * 10, [False] * 5 + [True] * 25])
    return Case(lambda b, h, q, kv: keep[b, kv], 2, None, 12, 30)


@mask
def query_and_key_padding():
    lengths = on_device([5, 31, 18], torch.int32)
    return Case(
        lambda b, h, q, kv: (q < lengths[b]) & (kv < lengths[b]) & causal_mod(b, h, q, kv),
        3,
        None,
        31,
        31,
    )


@mask
def transfusion():
    """Causal text with bidirectional images at (offset, size)."""
    images = on_device([[[3, 20], [50, 6]], [[0, 9], [30, 30]]])

    def modality(offset, size):
        return lambda b, h, q, kv: (q >= offset[b]) & (kv < offset[b] + size[b])

    def mod(b, h, q, kv):
        visible = q >= kv
        for image in range(images.shape[1]):
            seen = modality(images[:, image, 0], images[:, image, 1])
            visible = torch.logical_or(visible, seen(b, h, q, kv))
        return visible

    return Case(mod, 2, None, 70, 70)


@mask
def paged():
    """Keys stand in physical pages: logical positions by table, -1 where a page is not the
    sequence's."""
    page_size, pages = 8, 6
    physical_to_logical = on_device([[2, -1, 0, 1, -1, 3], [-1, 0, -1, -1, 1, -1]])

    def mod(b, h, q, physical):
        page = physical_to_logical[b, physical // page_size]
        logical = page * page_size + physical % page_size
        return torch.where(page >= 0, causal_mod(b, h, q, logical), False)

    return Case(mod, 2, None, 32, page_size * pages)


@mask
def jagged():
    """Rows of a jagged batch, with the sequence's bounds by table."""
    bounds = on_device([0, 9, 9, 40, 55])
    row = torch.repeat_interleave(torch.arange(4, device=DEVICE), bounds.diff())
    return Case(
        lambda b, h, q, kv: (kv >= bounds[row[q]]) & (kv < bounds[row[q] + 1]), None, None, 55, 55
    )


@mask
def block_diffusion():
    """Noisy half then clean half: training of block diffusion models."""
    n, block = 40, 8

    def mod(b, h, q, kv):
        x0_q, x0_kv = q >= n, kv >= n
        block_q = torch.where(x0_q == 1, (q - n) // block, q // block)
        block_kv = torch.where(x0_kv == 1, (kv - n) // block, kv // block)
        diagonal = (block_q == block_kv) & (x0_q == x0_kv)
        offset_causal = (block_q > block_kv) & (x0_kv == 1) & (x0_q == 0)
        causal_blocks = (block_q >= block_kv) & (x0_kv == 1) & (x0_q == 1)
        return diagonal | offset_causal | causal_blocks

    return Case(mod, None, None, 2 * n, 2 * n)


@mask
def tree():
    ancestors = torch.eye(12, dtype=torch.bool)
    for node, parent in enumerate([-1, 0, 0, 1, 1, 2, 2, 5, 5, 3, 3, 4]):
        if parent >= 0:
            ancestors[node] |= ancestors[parent]
    ancestors, prefix = ancestors.to(DEVICE), 9

    def mod(b, h, q, kv):
        return (kv < prefix) | ancestors[q, (kv - prefix).clamp(min=0)] & (kv >= prefix)

    return Case(mod, None, None, 12, 21)


@mask
def offset_by_a_tensor():
    offset = on_device(37)

    def shifted(mod, offset):
        return lambda b, h, q, kv: mod(b, h, q + offset, kv)

    return Case(shifted(causal_mod, offset), None, None, 5, 64)


@mask
def partial_of_keywords():
    def window(b, h, q, kv, *, left, right):
        return (kv >= q - left) & (kv <= q + right)

    return Case(functools.partial(window, left=3, right=1), None, None, 40, 40)


@mask
def callable_object():
    class Window:
        def __init__(self, size):
            self.size = size
            self.ids = lengths_to_ids([20, 20])

        def __call__(self, b, h, q, kv):
            return (q - kv < self.size) & (self.ids[q] == self.ids[kv])

    return Case(Window(6), None, None, 40, 40)


@mask
def nested_joins():
    mods = (causal_mod, sliding_mod(5), document_mod(lengths_to_ids([25, 24])))
    return Case(
        or_masks(and_masks(*mods), and_masks(or_masks(*mods[:2]), mods[2])), None, None, 49, 49
    )


@mask
def bits_and_shifts():
    return Case(
        lambda b, h, q, kv: (((q ^ kv) & 5) == 0) | ((q >> 2) == (kv >> 2)) ^ (kv << 1 > q),
        None,
        None,
        64,
        64,
    )


@mask
def booleans_as_numbers():
    return Case(
        lambda b, h, q, kv: (
            ((q > kv) * 2 + (kv % 2 == 0) >= 2) & ~(q == 3).logical_not().logical_not()
        ),
        None,
        None,
        21,
        21,
    )


@mask
def fractions():
    window = 33 / 4
    return Case(
        lambda b, h, q, kv: (q - kv < window) & (kv - q <= 1.5) & (q != 7.5) & (kv > -1e30),
        None,
        None,
        40,
        40,
    )


@mask
def constants_of_torch():
    def mod(b, h, q, kv):
        far = torch.full((), 12, device=q.device, dtype=q.dtype)
        table = torch.cat([torch.ones(30), torch.zeros(20)]).to(torch.int64)
        near = torch.minimum(q - kv, torch.tensor(30)) < torch.maximum(far, kv.new_zeros(()) + 2)
        return near | (table.to(q.device)[kv] == torch.tensor([2, 1]).min())

    return Case(mod, None, None, 50, 50)


@mask
def vectors_joined_inside():
    ids = lengths_to_ids([10, 20])
    return Case(lambda b, h, q, kv: (ids[:, None] == ids[None, :])[q, kv], None, None, 30, 30)


if TORCH >= (2, 11):  # before, torch.vmap indexes with no numbers beside its own

    @mask
    def slices_and_numbers():
        table = random(3, 4, 20, 24) > 0.4
        return Case(
            lambda b, h, q, kv: table[1, :, 2:][h][q, kv + 1] | table[-1, 0, q, ...][kv],
            None,
            4,
            18,
            23,
        )


@mask
def divisions():
    def mod(b, h, q, kv):
        rounded = torch.div(q - 20, 7, rounding_mode="trunc") == torch.div(
            kv - 20, 7, rounding_mode="trunc"
        )
        return (
            rounded | (torch.floor_divide(q - 9, -4) == torch.remainder(kv, 5) - 3) | (2**3 == kv)
        )

    return Case(mod, None, None, 41, 41)
