"""Models under torch.compile, as whole graphs."""

import pytest
import torch
import torch._dynamo.testing
from transformers import StaticCache

import stof
from models import (
    CAUSAL,
    MODEL_DTYPE,
    TEXT,
    assert_as_eager,
    inputs,
    make,
    model,
    padding,
)
from test_sparse_masks import SPARSE, eager


def compiled(the_model, **options):
    torch._dynamo.reset()
    return torch.compile(the_model, fullgraph=True, **{"backend": "aot_eager", **options})


def expected(name, **arguments):
    with torch.no_grad():
        return (
            model(name, "eager", MODEL_DTYPE)(**inputs(name, dtype=MODEL_DTYPE), **arguments)[0],
            model(name, "eager")(**inputs(name), **arguments)[0],
        )


@pytest.mark.parametrize("side", ["none", "left"])
@pytest.mark.parametrize("name", [*TEXT, "t5", "vit"])
def test_one_graph(name, side):
    arguments = {} if name == "vit" else dict(attention_mask=padding(side))
    if name == "t5":
        arguments["use_cache"] = False  # torch cannot trace how its cache is made
    run = compiled(model(name, "stof", MODEL_DTYPE))
    with torch.no_grad():
        got = run(**inputs(name, dtype=MODEL_DTYPE), **arguments)[0]
    keep = None if name in ("t5", "vit") else arguments["attention_mask"]
    assert_as_eager(got, *expected(name, **arguments), MODEL_DTYPE, keep=keep)


@pytest.mark.parametrize("name", ["bert", "gemma2"])
def test_inductor(name):
    mask = padding("right")
    run = compiled(model(name, "stof", MODEL_DTYPE), backend="inductor")
    with torch.no_grad():
        got = run(**inputs(name), attention_mask=mask)[0]
    assert_as_eager(got, *expected(name, attention_mask=mask), MODEL_DTYPE, keep=mask)


@pytest.mark.parametrize("name", CAUSAL)
def test_packed_sequences_are_known_when_the_graph_runs(name):
    """Without a cache positions may pack sequences; one graph serves all ways of packing."""
    frames = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    run = compiled(model(name, "stof", MODEL_DTYPE), backend=frames)
    ids, counts = inputs(name)["input_ids"], set()
    for lengths in ([13], [5, 8], [1, 2, 10]):
        positions = torch.cat([torch.arange(n) for n in lengths])[None].expand(2, -1).to(ids.device)
        arguments = dict(position_ids=positions, use_cache=False)
        with torch.no_grad():
            got = run(ids, **arguments)[0]
        assert_as_eager(got, *expected(name, **arguments), MODEL_DTYPE)
        counts.add(frames.frame_count)
    assert len(counts) == 1


@pytest.mark.parametrize("name", ["bert", "llama", "mistral"])
def test_dynamic_shapes(name):
    frames = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    run = compiled(model(name, "stof", MODEL_DTYPE), dynamic=True, backend=frames)
    counts = set()
    for length in (13, 17, 22):
        given, mask = inputs(name, length=length), padding("left", length=length)
        with torch.no_grad():
            got = run(**given, attention_mask=mask)[0]
            near = model(name, "eager", MODEL_DTYPE)(**given, attention_mask=mask)[0]
            exact = model(name, "eager")(**given, attention_mask=mask)[0]
        assert_as_eager(got, near, exact, MODEL_DTYPE, keep=mask)
        counts.add(frames.frame_count)
    assert len(counts) == 1


@pytest.mark.parametrize("sparse", [None, SPARSE, "dilated(8, 2) | global(1, 1)"],
                         ids=["dense", "object", "text"])  # fmt: skip
@pytest.mark.parametrize("name", ["llama", "gemma2"])
def test_steps_on_a_static_cache(name, sparse):
    """One graph for the prompt, one for the steps."""
    the_model = make(name, "stof", MODEL_DTYPE)
    the_model.config.stof_mask = sparse
    ids = inputs(name)["input_ids"]
    past = StaticCache(config=the_model.config, max_cache_len=16)
    run = compiled(the_model, dynamic=False)
    steps, start = [], 0
    with torch.no_grad():
        for size in (9, 1, 1, 1, 1):
            positions = torch.arange(start, start + size, device=ids.device)[None]
            call = the_model if size > 1 else run
            steps.append(
                call(
                    ids[:, start : start + size], past_key_values=past, position_ids=positions
                ).logits
            )
            start += size
    results = expected(name)
    if sparse is not None:
        results = [eager(name, None, dtype) for dtype in (MODEL_DTYPE, torch.float32)]
    assert_as_eager(torch.cat(steps, 1), *results, MODEL_DTYPE)


def test_a_compiled_prompt_on_a_static_cache():
    the_model = model("llama", "stof", MODEL_DTYPE)
    past = StaticCache(config=the_model.config, max_cache_len=16)
    past.early_initialization(
        batch_size=2, num_heads=2, head_dim=16, dtype=MODEL_DTYPE, device=the_model.device
    )
    with torch.no_grad():
        got = compiled(the_model)(**inputs("llama"), past_key_values=past).logits
    assert_as_eager(got, *expected("llama"), MODEL_DTYPE)


@pytest.mark.parametrize("how", ["object", "text"])
@pytest.mark.parametrize("name", ["bert", "llama", "gemma2"])
def test_sparse_mask_of_the_config(name, how):
    mask = padding("left")
    sparse = make(name, "stof", MODEL_DTYPE)
    sparse.config.stof_mask = SPARSE if how == "object" else "dilated(8, 2) | global(1, 1)"
    run = compiled(sparse)
    with torch.no_grad():
        got = run(**inputs(name), attention_mask=mask)[0]
    results = [eager(name, mask, dtype) for dtype in (MODEL_DTYPE, torch.float32)]
    assert_as_eager(got, *results, MODEL_DTYPE, keep=mask)
    sparse.config.stof_mask = None  # the graph does not outlive what it was made for
    with torch.no_grad():
        got = run(**inputs(name), attention_mask=mask)[0]
    assert_as_eager(got, *expected(name, attention_mask=mask), MODEL_DTYPE, keep=mask)


def test_gradients_are_refused():
    with pytest.raises(stof.Unsupported, match="no backward pass"):
        model("llama", "stof", MODEL_DTYPE)(**inputs("llama"))
    with pytest.raises(Exception, match="no backward pass"):
        compiled(model("llama", "stof", MODEL_DTYPE))(**inputs("llama"))
