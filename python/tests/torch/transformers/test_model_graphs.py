"""Models in CUDA graphs."""

import pytest
import torch
from transformers import StaticCache

import stof.transformers
from comparing import ON_GPU
from models import MODEL_DTYPE, assert_as_eager, inputs, make, model, padding

pytestmark = pytest.mark.skipif(not ON_GPU, reason="CUDA graphs need a GPU")


def eager(name, **arguments):
    with torch.no_grad():
        return (
            model(name, "eager", MODEL_DTYPE)(**arguments)[0],
            model(name, "eager")(**arguments)[0],
        )


def test_an_encoder_with_padding_is_captured():
    """With padding as a bias; lengths change between replays."""
    bert = model("bert", "stof", MODEL_DTYPE)
    ids, mask = inputs("bert")["input_ids"].clone(), padding("right").clone()
    stof.transformers.register(plan_padding=False)
    try:
        with torch.no_grad():
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                bert(ids, attention_mask=mask)
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                out = bert(ids, attention_mask=mask)[0]
            for side_of_padding in ("right", "left", "inside"):
                mask.copy_(padding(side_of_padding))
                ids.copy_(ids.flip(0))
                graph.replay()
                given = dict(input_ids=ids, attention_mask=mask)
                assert_as_eager(out, *eager("bert", **given), MODEL_DTYPE, keep=mask)
    finally:
        stof.transformers.register()


def test_padding_that_would_be_read_while_capturing_is_refused():
    """Also where plans for padding as a bias have run before, as here."""
    bert = model("bert", "stof", MODEL_DTYPE)
    given = dict(**inputs("bert"), attention_mask=padding("left"))
    with torch.no_grad():
        bert(**given)
        stof.transformers.register(plan_padding=False)
        try:
            bert(**given)
        finally:
            stof.transformers.register()
        graph = torch.cuda.CUDAGraph()
        with pytest.raises(stof.Unsupported, match=r"register\(plan_padding=False\)"):
            with torch.cuda.graph(graph):
                bert(**given)
    torch.cuda.synchronize()


@pytest.mark.parametrize("mode", ["reduce-overhead", "default"])
@pytest.mark.parametrize("name", ["llama", "gemma2"])
def test_steps_on_a_static_cache(name, mode):
    torch._dynamo.reset()
    the_model = make(name, "stof", MODEL_DTYPE)
    ids = inputs(name)["input_ids"]
    past = StaticCache(config=the_model.config, max_cache_len=16)
    step = torch.compile(the_model, fullgraph=True, mode=mode, dynamic=False)
    logits, start = [], 0
    with torch.no_grad():
        for size in (9, 1, 1, 1, 1):
            torch.compiler.cudagraph_mark_step_begin()
            positions = torch.arange(start, start + size, device=ids.device)[None]
            call = the_model if size > 1 else step
            out = call(ids[:, start : start + size], past_key_values=past, position_ids=positions)
            logits.append(out.logits.clone())
            start += size
    assert_as_eager(torch.cat(logits, 1), *eager(name, input_ids=ids), MODEL_DTYPE)


@pytest.mark.parametrize("name", ["llama", "gemma2", "t5"])
def test_generate_compiles_its_steps(name):
    """transformers compiles the steps on a static cache by itself; tokens are those without."""
    torch._dynamo.reset()
    options = dict(
        max_new_tokens=8, do_sample=False, pad_token_id=0, eos_token_id=None,
        cache_implementation="static",
    )  # fmt: skip
    ids, mask = inputs(name)["input_ids"], padding("left")
    the_model = model(name, "stof", MODEL_DTYPE)
    plain = the_model.generate(ids, attention_mask=mask, disable_compile=True, **options)
    assert torch.equal(the_model.generate(ids, attention_mask=mask, **options), plain)
