"""What flex_attention and create_block_mask refuse: one error, no warning before it."""

import math
import warnings

import pytest
import torch

import stof
import stof.compat.flex
from comparing import DEVICE, randn
from stof import InvalidArgument, Unsupported
from stof.compat.flex import TraceWarning, create_block_mask, flex_attention


def branch(score, b, h, q, k):
    return score if q >= k else -score


def sine(score, b, h, q, k):
    return score + math.sin(q)


def nothing(score, b, h, q, k):
    return None


@pytest.mark.parametrize("score_mod", [branch, sine, nothing])
def test_no_warning_before_an_error(score_mod):
    q = randn(1, 2, 8, 16)
    with warnings.catch_warnings():
        warnings.simplefilter("error", TraceWarning)
        with pytest.raises(Unsupported, match="can neither be traced"):
            flex_attention(q, q, q, score_mod=score_mod)


def test_every_name_of_torchs():
    import torch.nn.attention.flex_attention as torch_flex

    for name in (*torch_flex.__all__, "_mask_mod_signature", "_score_mod_signature"):
        assert hasattr(stof.compat.flex, name), name
    with pytest.raises(ImportError):
        from stof.compat.flex import no_such_name  # noqa: F401
    assert dir(stof.compat.flex) == sorted(stof.compat.flex.__all__)


@pytest.mark.parametrize(
    "name, message",
    [
        ("is_causal", "create_block_mask"),
        ("mask_mod", "create_block_mask"),
        ("attn_mask", "score_mod"),
        ("dropout_p", "leave it out"),
        ("no_such_name", "no_such_name=$"),
    ],
)
def test_foreign_arguments(name, message):
    q = randn(1, 2, 8, 16)
    with pytest.raises(TypeError, match=f"flex_attention.. has no argument .*{message}"):
        flex_attention(q, q, q, **{name: 0})


def causal(b, h, q, k):
    return q >= k


def test_what_is_no_block_mask():
    q = randn(1, 2, 8, 16)
    block_mask = create_block_mask(causal, None, None, 8, 8, device=DEVICE)
    boolean = torch.ones(8, 8, dtype=torch.bool, device=DEVICE)
    for given, message in (
        (causal, "pass create_block_mask"),
        (stof.masks.causal(), "pass it to stof.attention"),
        (boolean, "pass it to stof.attention"),
    ):
        with pytest.raises(InvalidArgument, match=f"block_mask: .*{message}"):
            flex_attention(q, q, q, block_mask=given)
    with pytest.raises(InvalidArgument, match="pass it as block_mask="):
        flex_attention(q, q, q, block_mask)
    with pytest.raises(InvalidArgument, match=r"to_stof_mask\(block_mask\)"):
        stof.attention(q, q, q, block_mask)


def test_names_in_errors():
    q = randn(1, 2, 8, 16)
    other = torch.bfloat16
    with pytest.raises(Unsupported, match="^key: expected a tensor without gradients"):
        flex_attention(q, q.clone().requires_grad_(), q)
    with pytest.raises(InvalidArgument, match="^query: expected dtype"):
        flex_attention(*(x.double() for x in (q, q, q)))
    with pytest.raises(InvalidArgument, match="^key: expected dtype .*like query"):
        flex_attention(q, q.to(other), q.to(other))
    with pytest.raises(InvalidArgument, match="^value: expected shape"):
        flex_attention(q, q, q[:, :, :3])
    transposed = q.transpose(1, 2)
    block_mask = create_block_mask(causal, None, None, 8, 8, device=DEVICE)
    with pytest.raises(InvalidArgument, match=r"pass q.transpose\(1, 2\)"):
        flex_attention(transposed, transposed, transposed, block_mask=block_mask)


def test_constants_are_results():
    block_mask = create_block_mask(lambda b, h, q, k: True, None, None, 256, 256, device=DEVICE)
    assert block_mask.full_kv_num_blocks.sum() == 4
    q = randn(1, 2, 256, 16)
    torch.testing.assert_close(
        flex_attention(q, q, q, block_mask=block_mask), flex_attention(q, q, q)
    )


def test_block_lists_of_a_mask_that_reads_past_a_tensor():
    document = torch.zeros(3, dtype=torch.int64)
    block_mask = create_block_mask(
        lambda b, h, q, k: document[q] == document[k], None, None, 8, 8, device="cpu"
    )
    with pytest.raises(InvalidArgument, match="test_flex_refusals.py:.*clamp the index"):
        block_mask.to_dense()


def of_array(b, h, q, k):
    return ARRAY[q] == ARRAY[k]


def branching(b, h, q, k):
    return q >= k if q > 3 else k >= q


def drawing(b, h, q, k):
    return torch.rand(()) > 0.5


ARRAY = torch.zeros(8, dtype=torch.int64).numpy()


@pytest.mark.parametrize(
    "mask_mod, message",
    [
        (of_array, "torch.as_tensor"),
        (branching, "use &, |, ~ and torch.where"),
        (drawing, "random"),
    ],
)
def test_what_to_write_instead(mask_mod, message):
    with pytest.raises(InvalidArgument) as caught:
        create_block_mask(mask_mod, None, None, 8, 8, device=DEVICE)
    said = str(caught.value)
    assert message in said and "functorch" not in said and "data pointer" not in said
