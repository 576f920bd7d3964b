"""What stof cannot honour is an error that names it."""

import contextlib

import pytest
import torch
import transformers

import stof
import stof.transformers
from comparing import DEVICE
from models import MODEL_DTYPE, inputs, make, model
from stof.transformers.attention_function import stof_attention
from stof.transformers.host_mask import HostMask


class Module(torch.nn.Module):
    is_causal = False


def call(**arguments):
    q = torch.zeros(1, 2, 4, 16, device=DEVICE, dtype=MODEL_DTYPE)
    return stof_attention(Module(), q, q, q, **{"attention_mask": None, **arguments})


@pytest.mark.parametrize(
    "arguments, message",
    [
        (dict(dropout=0.1), "dropout: expected 0, got 0.1"),
        (dict(output_attentions=True), "output_attentions: expected False"),
        (dict(head_mask=torch.ones(2)), "head_mask: expected None"),
        (dict(layer_head_mask=torch.ones(2)), "layer_head_mask: expected None"),
        (dict(cu_seq_lens_q=torch.tensor([0, 4])), "cu_seq_lens_q: expected None.*position_ids"),
        (dict(indices=torch.zeros(1, 4, 2)), "indices: expected None"),
        (dict(block_indices=torch.zeros(1)), "block_indices: expected None"),
        (
            dict(something_new=3),
            r"something_new: expected None.*register\(ignore=\['something_new'\]",
        ),
        (dict(sliding_window=3), "attention_mask: expected one with sliding_window=3"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_arguments(arguments, message):
    with pytest.raises(stof.Unsupported, match=message):
        call(**arguments)


def test_arguments_without_a_value_are_none():
    call(head_mask=None, output_attentions=False, something_new=None, position_ids=torch.arange(4))
    with pytest.raises(stof.Unsupported, match="something_new: expected None"):
        call(something_new=False)  # what switching it off means is not known either


def test_arguments_may_be_declared_harmless():
    try:
        stof.transformers.register(ignore=["something_new"])
        call(something_new=3)
        stof.transformers.register(ignore=["another"])
        with pytest.raises(stof.Unsupported, match="something_new: expected None"):
            call(something_new=3)
    finally:
        stof.transformers.register()
    with pytest.raises(stof.Unsupported, match="another: expected None"):
        call(another=3)
    with pytest.raises(stof.InvalidArgument, match="ignore: expected names of arguments in a list"):
        stof.transformers.register(ignore="another")
    for wrong in ("no", 0, None):
        with pytest.raises(stof.InvalidArgument, match="plan_padding: expected True or False"):
            stof.transformers.register(plan_padding=wrong)


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.int8, torch.uint16])
@pytest.mark.parametrize("sparse", [None, "window(2, 0)"])
def test_masks_of_integers(dtype, sparse):
    """Whether or not a sparse mask is set, whose rows travel in an element type of their own."""
    given = torch.ones(1, 1, 4, 4, device=DEVICE).to(dtype)
    block = contextlib.nullcontext() if sparse is None else stof.transformers.sparse_mask(sparse)
    with (
        block,
        pytest.raises(stof.InvalidArgument, match="attention_mask: expected booleans.*bool()"),
    ):
        call(attention_mask=given)


def test_padding_is_not_planned_for_in_a_cuda_graph(monkeypatch):
    """Its plan would be replayed for other padding."""
    from models import padding

    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    with torch.no_grad(), pytest.raises(stof.Unsupported, match=r"register\(plan_padding=False\)"):
        model("bert", "stof", MODEL_DTYPE)(**inputs("bert"), attention_mask=padding("left"))


def test_causal_lengths_without_a_mask():
    q, k = (torch.zeros(1, 2, n, 16, device=DEVICE, dtype=MODEL_DTYPE) for n in (3, 7))
    with pytest.raises(stof.InvalidArgument, match="expected one for 3 queries and 7 keys"):
        stof_attention(Module(), q, k, k, None, is_causal=True)


def test_a_mask_of_another_cache():
    with pytest.raises(
        stof.InvalidArgument, match="expected one for 4 queries and 4 keys, got one for 4"
    ):
        call(attention_mask=HostMask((1, 1, 4, 9)))


@pytest.mark.parametrize("name", ["llama", "gpt2", "bert", "t5"])
def test_attention_weights(name):
    with torch.no_grad(), pytest.raises(stof.Unsupported, match="attn_implementation='eager'"):
        model(name, "stof", MODEL_DTYPE)(**inputs(name), output_attentions=True)


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_attention_weights_of_compiled_models(name):
    torch._dynamo.reset()
    run = torch.compile(model(name, "stof", MODEL_DTYPE), fullgraph=True, backend="eager")
    with torch.no_grad(), pytest.raises(Exception, match="output_attentions: expected False"):
        run(**inputs(name), output_attentions=True)


def test_training_dropout():
    bert = make("bert", "stof", MODEL_DTYPE, attention_probs_dropout_prob=0.1).train()
    with torch.no_grad(), pytest.raises(stof.Unsupported, match="dropout: expected 0, got 0.1"):
        bert(**inputs("bert"))


def test_host_masks_cannot_be_sliced():
    with pytest.raises(TypeError, match="cannot be sliced"):
        HostMask((1, 1, 4, 4))[:, :, :2]


def test_padding_as_a_bias_gives_the_same():
    from models import padding

    arguments = dict(**inputs("llama"), attention_mask=padding("left"))
    with torch.no_grad():
        planned = model("llama", "stof", MODEL_DTYPE)(**arguments)[0]
        try:
            stof.transformers.register(plan_padding=False)
            biased = model("llama", "stof", MODEL_DTYPE)(**arguments)[0]
        finally:
            stof.transformers.register()
    keep = padding("left").bool()
    torch.testing.assert_close(
        planned[keep], biased[keep], rtol=0, atol=2e-2 if DEVICE == "cuda" else 1e-4
    )


def test_models_that_would_ignore_the_registry():
    from transformers import DebertaV2Config, DebertaV2ForMaskedLM

    config = DebertaV2Config(
        vocab_size=31, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32
    )
    config._attn_implementation = "stof"
    with pytest.raises(stof.Unsupported, match="DebertaV2ForMaskedLM.*would ignore stof"):
        DebertaV2ForMaskedLM(config)
    config._attn_implementation = "eager"
    DebertaV2ForMaskedLM(config)


def test_layers_that_make_masks_of_their_own_are_refused():
    config = transformers.DogeConfig(
        vocab_size=100,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=40,
        pad_token_id=0,
    )
    doge = transformers.DogeForCausalLM._from_config(config, attn_implementation="stof").eval()
    with torch.no_grad(), pytest.raises(stof.Unsupported, match=r"prepare_dynamic_mask.*eager"):
        doge(torch.arange(1, 9)[None])
