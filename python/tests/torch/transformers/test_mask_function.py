"""The mask function against transformers' own dense masks, pair by pair."""

import pytest
import torch
from transformers import LlamaConfig, masking_utils

import stof
from comparing import DEVICE
from stof.transformers.host_mask import HostMask
from stof.transformers.mask_function import stof_mask

IDS = torch.tensor([[0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 2], [0, 0, 0, 0, 0, 1, 2, 2, 2, 3, 3, 3]])
GROUPS = torch.tensor(
    [[-1, -1, 0, 0, 0, -1, -1, 1, 1, 1, -1, -1], [0, 0, -1, -1, -1, -1, 2, 2, 2, 2, 2, -1]]
)
CAUSAL = masking_utils.causal_mask_function
FUNCTIONS = {
    "causal": lambda: CAUSAL,
    "bidirectional": lambda: masking_utils.bidirectional_mask_function,
    "sliding": lambda: masking_utils.sliding_window_causal_mask_function(4),
    "sliding bidirectional": lambda: masking_utils.sliding_window_bidirectional_mask_function(4),
    "chunked": lambda: masking_utils.chunked_causal_mask_function(
        4, torch.tensor([0, 3], device=DEVICE)
    ),
    "packed": lambda: masking_utils.and_masks(
        CAUSAL, masking_utils.packed_sequence_mask_function(IDS.to(DEVICE))
    ),
    "packed and sliding": lambda: masking_utils.and_masks(
        masking_utils.sliding_window_causal_mask_function(3),
        masking_utils.packed_sequence_mask_function(IDS.to(DEVICE)),
    ),
    "blockwise": lambda: masking_utils.or_masks(
        CAUSAL, masking_utils.blockwise_overlay(GROUPS.to(DEVICE))
    ),
    "prefix": lambda: masking_utils.or_masks(CAUSAL, lambda b, h, q, k: k < 5),
    "extra and": lambda: masking_utils.and_masks(
        CAUSAL, lambda b, h, q, k: (q - k) % 2 == torch.zeros((), dtype=torch.int64, device=DEVICE)
    ),
    "batch entries": lambda: masking_utils.and_masks(CAUSAL, lambda b, h, q, k: k >= 2 * b),
}
#: (q_length, kv_length, q_offset, kv_offset)
PLACES = [(12, 12, 0, 0), (3, 12, 9, 0), (5, 8, 7, 4), (7, 12, 0, 0), (2, 6, 6, 4)]


def padding_of(kind, length):
    if kind == "none":
        return None
    mask = torch.ones(2, length, dtype=torch.bool, device=DEVICE)
    if kind == "left":
        mask[1, :3] = False
    elif kind == "right":
        mask[1, -4:] = False
    else:
        mask[0, 2:5] = False
        mask[1, 0] = False
    return mask


def dense(made):
    """Booleans [batch, 1, q_length, kv_length] of a HostMask outside of a graph."""
    batch, _, q_length, kv_length = made.shape
    visible = torch.from_numpy(made.mask.to_dense(q_length, kv_length, batch=batch))
    return visible if made.row is None else visible & made.row.cpu()


@pytest.mark.parametrize("padding", ["none", "left", "right", "inside"])
@pytest.mark.parametrize("place", PLACES, ids=str)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_as_transformers(function, place, padding):
    q_length, kv_length, q_offset, kv_offset = place
    arguments = dict(
        batch_size=2,
        q_length=q_length,
        kv_length=kv_length,
        q_offset=q_offset,
        kv_offset=kv_offset,
        mask_function=FUNCTIONS[function](),
        attention_mask=padding_of(padding, kv_offset + kv_length),
        device=DEVICE,
    )
    made = stof_mask(**arguments, config=LlamaConfig())
    theirs = masking_utils.sdpa_mask(
        **arguments, allow_is_causal_skip=False, use_vmap=function == "extra and"
    )
    assert isinstance(made, HostMask) and made.shape == theirs.shape
    assert torch.equal(dense(made), theirs.cpu())


@pytest.mark.parametrize("function", ["causal", "sliding", "chunked", "packed"])
def test_known_functions_are_the_algebras_own(function):
    """Not tables of pairs: what the kernels skip tiles by."""
    made = stof_mask(2, 12, 12, mask_function=FUNCTIONS[function](), device=DEVICE)
    text = made.mask.to_text()
    assert text.startswith({"packed": "causal & "}.get(function, text[:1]))
    assert "dense" not in text
    if function in ("causal", "sliding"):
        assert text == {"causal": "causal", "sliding": "causal & window(3, -1)"}[function]


def test_one_mask_object_for_equal_masks():
    def make():
        return stof_mask(
            2, 12, 12, mask_function=FUNCTIONS["packed"](), attention_mask=padding_of("left", 12),
            device=DEVICE,
        ).mask  # fmt: skip

    assert make() is make()


def test_padding_that_is_longer_than_the_keys():
    """A sliding cache forgets the first tokens; the padding mask does not."""
    mask = torch.ones(2, 12, dtype=torch.bool, device=DEVICE)
    mask[1, :8] = False
    arguments = dict(q_length=2, kv_length=5, q_offset=10, kv_offset=7, attention_mask=mask)
    made = stof_mask(2, **arguments, device=DEVICE)
    theirs = masking_utils.sdpa_mask(2, **arguments, allow_is_causal_skip=False, device=DEVICE)
    assert torch.equal(dense(made), theirs.cpu())


def test_padding_that_is_shorter_than_the_keys():
    """A static cache has more room than there are tokens."""
    mask = torch.ones(2, 6, dtype=torch.bool, device=DEVICE)
    arguments = dict(q_length=6, kv_length=10, attention_mask=mask)
    made = stof_mask(2, **arguments, device=DEVICE)
    theirs = masking_utils.sdpa_mask(2, **arguments, allow_is_causal_skip=False, device=DEVICE)
    assert torch.equal(dense(made), theirs.cpu())


def test_steps_that_may_be_compiled_get_a_row():
    offset = torch.tensor(9, device=DEVICE)
    arguments = dict(
        q_length=1, kv_length=12, q_offset=offset, attention_mask=padding_of("left", 10),
        mask_function=FUNCTIONS["sliding"](),
    )  # fmt: skip
    made = stof_mask(2, **arguments, device=DEVICE)
    theirs = masking_utils.sdpa_mask(2, **arguments, allow_is_causal_skip=False, device=DEVICE)
    assert made.shape == (2, 1, 1, 12) and torch.equal(made, theirs)


def test_no_array_of_all_pairs():
    """A mask of 65,536 tokens; a boolean array of its pairs would take 4 GiB an entry."""
    made = stof_mask(
        2, 65536, 65536, mask_function=FUNCTIONS["sliding"](),
        attention_mask=torch.ones(2, 65536, dtype=torch.bool, device=DEVICE), device=DEVICE,
    )  # fmt: skip
    assert made.mask.keys(60000, 65536) == list(range(59997, 60001))


def test_functions_that_have_no_expression_are_refused():
    def looks_at_values(b, h, q, k):
        return k <= q if bool(q < 5) else k == q

    with pytest.raises(stof.Unsupported, match="mask_function: expected one with an expression"):
        stof_mask(2, 12, 12, mask_function=looks_at_values, device=DEVICE)
