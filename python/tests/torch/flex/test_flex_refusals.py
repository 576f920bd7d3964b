"""What flex_attention and create_block_mask refuse: one error, no warning that promised a result."""

import math
import warnings

import pytest
import torch

import stof.compat.flex
from comparing import DEVICE, randn
from stof import Unsupported
from stof.compat.flex import TraceWarning, flex_attention


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
