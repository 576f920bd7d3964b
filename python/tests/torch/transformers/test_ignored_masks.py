"""Sparse masks that another attention than "stof" ignores are warned about."""

import warnings

import pytest
import torch

import stof
import stof.transformers
from models import MODEL_DTYPE, inputs, make, model


def run(other):
    with torch.no_grad():
        other(**inputs("llama"))


def test_a_block_in_which_no_stof_attention_ran():
    with pytest.warns(UserWarning, match=r'"stof" to run.*window\(3, 0\) had no effect') as caught:
        with stof.transformers.sparse_mask("window(3, 0)"):
            run(model("llama", "eager", MODEL_DTYPE))
    assert len(caught) == 1 and caught[0].filename == __file__


def test_blocks_that_had_an_effect():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with stof.transformers.sparse_mask("window(3, 0)"):
            with stof.transformers.sparse_mask("window(5, 0)"):
                run(model("llama", "stof", MODEL_DTYPE))
        with pytest.raises(KeyError), stof.transformers.sparse_mask("window(3, 0)"):
            raise KeyError  # what happened is said by the error


def test_a_saved_mask_needs_its_attention_again(tmp_path):
    saved = make("llama", "stof", MODEL_DTYPE)
    saved.config.stof_mask = "window(4, 0)"
    saved.save_pretrained(tmp_path)
    with pytest.warns(
        UserWarning, match=r"expected attn_implementation='stof' beside window\(4, 0\)"
    ):
        loaded = type(saved).from_pretrained(tmp_path)
    assert loaded.config.stof_mask == "window(4, 0)"
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        loaded.set_attn_implementation("stof")
        type(saved).from_pretrained(tmp_path, attn_implementation="stof")
    with pytest.warns(UserWarning, match="got 'eager', which ignores the mask"):
        loaded.set_attn_implementation("eager")
