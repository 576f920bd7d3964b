"""Every architecture gives with "stof" what it gives with "eager"."""

import pytest
import torch
from transformers import AutoModel, AutoModelForCausalLM, LlamaConfig

import stof
from comparing import assert_close, randn, reference
from models import (
    CASES,
    CAUSAL,
    MIXED,
    MODEL_DTYPE,
    MODEL_DTYPES,
    TEXT,
    assert_as_eager,
    inputs,
    make,
    model,
    padding,
)


def outputs(name, dtype, **arguments):
    """(stof, eager, eager in float32)."""
    results = []
    for attention, its_dtype in (("stof", dtype), ("eager", dtype), ("eager", torch.float32)):
        with torch.no_grad():
            results.append(
                model(name, attention, its_dtype)(**inputs(name, dtype=its_dtype), **arguments)[0]
            )
    return results


@pytest.mark.parametrize("dtype", MODEL_DTYPES, ids=str)
@pytest.mark.parametrize("side", ["none", "left", "right", "inside"])
@pytest.mark.parametrize("name", TEXT)
def test_logits(name, side, dtype):
    mask = padding(side)
    assert_as_eager(*outputs(name, dtype, attention_mask=mask), dtype, keep=mask)


@pytest.mark.parametrize("side", ["none", "left", "right"])
@pytest.mark.parametrize("name", MIXED)
def test_models_whose_layers_have_masks_of_their_own(name, side):
    mask = padding(side)
    assert_as_eager(*outputs(name, MODEL_DTYPE, attention_mask=mask), MODEL_DTYPE, keep=mask)


@pytest.mark.parametrize(
    "name, field, other",
    [("modernbert", "local_attention", 64), ("gemma3", "sliding_window", 64),
     ("llama4", "attention_chunk_size", 64)],
)  # fmt: skip
def test_their_windows_and_chunks_matter(name, field, other):
    """The test above could tell."""
    ids = inputs(name)["input_ids"]
    with torch.no_grad():
        results = [
            made(ids)[0]
            for made in (
                model(name, "stof", MODEL_DTYPE),
                make(name, "stof", MODEL_DTYPE, **{field: other}),
            )
        ]
    assert float((results[0] - results[1]).abs().max()) > 0.05


@pytest.mark.parametrize("dtype", MODEL_DTYPES, ids=str)
@pytest.mark.parametrize("side", ["none", "left", "right", "inside"])
def test_t5(side, dtype):
    assert_as_eager(*outputs("t5", dtype, attention_mask=padding(side)), dtype)


def test_t5_with_a_padded_decoder():
    decoder = padding("right", length=7)
    results = outputs(
        "t5", MODEL_DTYPE, attention_mask=padding("left"), decoder_attention_mask=decoder
    )
    assert_as_eager(*results, MODEL_DTYPE, keep=decoder)


@pytest.mark.parametrize("dtype", MODEL_DTYPES, ids=str)
def test_vit(dtype):
    assert_as_eager(*outputs("vit", dtype), dtype)


@pytest.mark.parametrize("name", CAUSAL)
def test_without_a_cache(name):
    assert_as_eager(*outputs(name, MODEL_DTYPE, use_cache=False), MODEL_DTYPE)


def test_padding_matters():
    """The tests above could tell."""
    ids = inputs("bert")["input_ids"]
    with torch.no_grad():
        with_mask = model("bert", "stof", MODEL_DTYPE)(ids, attention_mask=padding("right"))[0]
        without = model("bert", "stof", MODEL_DTYPE)(ids)[0]
    assert float((with_mask - without)[1, :3].abs().max()) > 0.05


@pytest.mark.parametrize("field", ["sliding_window", "attn_logit_softcapping"])
def test_window_and_softcap_matter(field):
    other = {"sliding_window": 64, "attn_logit_softcapping": None}[field]
    ids = inputs("gemma2")["input_ids"]
    changed = make("gemma2", "stof", MODEL_DTYPE, **{field: other})
    with torch.no_grad():
        difference = changed(ids)[0] - model("gemma2", "stof", MODEL_DTYPE)(ids)[0]
    assert float(difference.abs().max()) > 0.05


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_packed_position_ids(name):
    """Two sequences in one row, told apart by positions: CASES of 5 and 8 tokens."""
    ids = inputs(name)["input_ids"]
    positions = torch.cat([torch.arange(5), torch.arange(8)])[None].expand(2, -1).to(ids.device)
    arguments = dict(position_ids=positions, use_cache=False)
    with torch.no_grad():
        packed = model(name, "stof", MODEL_DTYPE)(ids, **arguments)[0]
        eager = model(name, "eager", MODEL_DTYPE)(ids, **arguments)[0]
        exact = model(name, "eager")(ids, **arguments)[0]
        alone = model(name, "eager")(ids[:, 5:])[0]
    assert_as_eager(packed, eager, exact, MODEL_DTYPE)
    assert_as_eager(packed[:, 5:], eager[:, 5:], alone, MODEL_DTYPE)


@pytest.mark.parametrize("kind", ["boolean", "additive"])
def test_a_mask_of_four_dimensions(kind):
    """Made by the caller; transformers hands it on as it is."""
    ids = inputs("llama")["input_ids"]
    visible = torch.rand(2, 1, 13, 13, generator=torch.Generator().manual_seed(5)) < 0.5
    visible = (visible | torch.eye(13, dtype=torch.bool)).to(ids.device)

    def additive(dtype):
        return torch.where(visible, 0.0, torch.finfo(dtype).min).to(dtype)

    with torch.no_grad():
        given = visible if kind == "boolean" else additive(MODEL_DTYPE)
        got = model("llama", "stof", MODEL_DTYPE)(ids, attention_mask=given)[0]
        eager = model("llama", "eager", MODEL_DTYPE)(ids, attention_mask=additive(MODEL_DTYPE))[0]
        exact = model("llama", "eager")(ids, attention_mask=additive(torch.float32))[0]
    assert_as_eager(got, eager, exact, MODEL_DTYPE)


def test_bidirectional_decoder():
    """A decoder turned into an encoder by its config."""
    arguments = dict(attention_mask=padding("right"))
    results = []
    for attention, dtype in (
        ("stof", MODEL_DTYPE),
        ("eager", MODEL_DTYPE),
        ("eager", torch.float32),
    ):
        encoder = make("llama", attention, dtype, is_causal=False)
        with torch.no_grad():
            results.append(encoder(**inputs("llama"), **arguments)[0])
    assert_as_eager(*results, MODEL_DTYPE, keep=arguments["attention_mask"])


def test_decoder_with_cross_attention():
    fields = dict(is_decoder=True, add_cross_attention=True)
    seen = torch.randn(2, 9, 64, generator=torch.Generator().manual_seed(1))
    results = []
    for attention, dtype in (
        ("stof", MODEL_DTYPE),
        ("eager", MODEL_DTYPE),
        ("eager", torch.float32),
    ):
        decoder = make("bert", attention, dtype, **fields)
        with torch.no_grad():
            results.append(
                decoder(
                    **inputs("bert"),
                    encoder_hidden_states=seen.to(decoder.device, dtype),
                    encoder_attention_mask=padding("right", length=9),
                )[0]
            )
    assert_as_eager(*results, MODEL_DTYPE)


def test_autocast():
    ids = inputs("llama")["input_ids"]
    with torch.no_grad(), torch.autocast(ids.device.type, dtype=torch.bfloat16):
        got = model("llama", "stof")(ids)[0]
        eager = model("llama", "eager")(ids)[0]
    with torch.no_grad():
        exact = model("llama", "eager")(ids)[0]
    assert_as_eager(got, eager, exact, torch.bfloat16)


def test_attention_is_chosen_as_transformers_does(tmp_path):
    config = CASES["llama"][1]()
    direct = AutoModelForCausalLM.from_config(config, attn_implementation="stof")
    assert direct.config._attn_implementation == "stof"
    direct.save_pretrained(tmp_path)
    loaded = AutoModel.from_pretrained(tmp_path, attn_implementation="stof").eval()
    assert loaded.config._attn_implementation == "stof"
    switched = AutoModel.from_pretrained(tmp_path).eval()
    switched.set_attn_implementation("stof")
    ids = inputs("llama")["input_ids"].cpu()
    with torch.no_grad():
        assert torch.equal(loaded(ids)[0], switched(ids)[0])


@pytest.mark.parametrize("name", [*CAUSAL, "t5"])
def test_causal_models_are_causal(name):
    """Changing token 7 of 8 leaves what comes before it as it was."""
    key = "decoder_input_ids" if name == "t5" else "input_ids"
    given = inputs(name, length=8)
    tokens = inputs("llama", length=8)["input_ids"]
    changed = tokens.clone()
    changed[:, 7] = 3 + (changed[:, 7] - 2) % 96
    with torch.no_grad():
        before, after = (
            model(name, "stof", MODEL_DTYPE)(**{**given, key: ids})[0] for ids in (tokens, changed)
        )
    # Experts sum in an order that depends on which tokens they get.
    assert_close(after[:, :7], before[:, :7], MODEL_DTYPE, factor=0.1)
    assert float((before - after)[:, 7].abs().max()) > 0.05


def test_causal_without_a_mask():
    """A host that calls the attention with no mask at all."""
    config = LlamaConfig(hidden_size=64, num_attention_heads=4, num_hidden_layers=1)
    layer = AutoModel.from_config(config, attn_implementation="stof").layers[0].self_attn
    from stof.transformers.attention_function import stof_attention

    q = randn(1, 4, 8, 16, dtype=MODEL_DTYPE)
    out, weights = stof_attention(layer, q, q, q, None)
    assert weights is None
    causal, window = stof.masks.causal(), stof.masks.window(2, 0)
    for got, queries, mask in (
        (out, q, causal),
        (stof_attention(layer, q, q, q, None, sliding_window=3)[0], q, causal & window),
        (stof_attention(layer, q[:, :, 7:], q, q, None, sliding_window=3)[0], q[:, :, 7:], window),
    ):
        visible = torch.from_numpy(mask.to_dense(8))[:, :, -queries.shape[2] :]
        expected, _ = reference(queries, q, q, visible)
        assert_close(got, expected.transpose(1, 2), MODEL_DTYPE)
