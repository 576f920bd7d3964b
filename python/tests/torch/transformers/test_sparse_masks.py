"""A sparse mask of the user's: from the config, from a `with` block, with padding and caches."""

import threading
from types import SimpleNamespace

import pytest
import torch

import stof
import stof.transformers
from comparing import assert_close, randn, reference
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
from stof.transformers.attention_function import stof_attention

TEXT_OF_SPARSE = "dilated(8, 2) | global(1, 1)"
SPARSE = stof.masks.parse(TEXT_OF_SPARSE)
WINDOWS = {"mistral": [5], "gemma2": [5, None], "gpt_oss": [5, None]}


def four_dimensional(name, mask, dtype, sparse=SPARSE, length=13, window=None):
    """The additive mask of all pairs that eager needs for the same."""
    visible = torch.from_numpy(sparse.to_dense(length, batch=2))
    if name != "bert":
        visible = visible & torch.ones(length, length, dtype=torch.bool).tril()
    if window is not None:
        visible = visible & torch.ones(length, length, dtype=torch.bool).triu(1 - window)
    if mask is not None:
        visible = visible & mask.bool().cpu()[:, None, None, :]
    return torch.where(visible, 0.0, torch.finfo(dtype).min).to(
        inputs("bert")["input_ids"].device, dtype
    )


def eager(name, mask, dtype, **options):
    windows = WINDOWS.get(name, [None])
    masks = [four_dimensional(name, mask, dtype, window=w, **options) for w in windows]
    if len(windows) > 1:
        given = {"sliding_attention": masks[0], "full_attention": masks[1]}
    else:
        given = masks[0]
    with torch.no_grad():
        return model(name, "eager", dtype)(**inputs(name), attention_mask=given)[0]


@pytest.mark.parametrize("how", ["object", "text", "block"])
@pytest.mark.parametrize("side", ["none", "left", "right"])
@pytest.mark.parametrize("name", TEXT)
def test_joined_with_the_models_own_mask(name, side, how):
    mask = padding(side)
    sparse = make(name, "stof", MODEL_DTYPE)
    if how != "block":
        sparse.config.stof_mask = SPARSE if how == "object" else TEXT_OF_SPARSE
    with torch.no_grad():
        if how == "block":
            with stof.transformers.sparse_mask(SPARSE):
                got = sparse(**inputs(name), attention_mask=mask)[0]
        else:
            got = sparse(**inputs(name), attention_mask=mask)[0]
        plain = model(name, "stof", MODEL_DTYPE)(**inputs(name), attention_mask=mask)[0]
    assert float((got - plain).abs().max()) > 0.05
    rows = torch.ones(2, 13, dtype=torch.bool) if mask is None else mask.bool()
    assert_as_eager(got, eager(name, mask, MODEL_DTYPE), eager(name, mask, torch.float32),
                    MODEL_DTYPE, keep=rows)  # fmt: skip


def test_block_and_config_are_joined():
    both = make("llama", "stof", MODEL_DTYPE)
    both.config.stof_mask = "dilated(8, 2)"
    with torch.no_grad(), stof.transformers.sparse_mask("window(6, 0)"):
        with stof.transformers.sparse_mask("window(-1, 0)"):
            got = both(**inputs("llama"))[0]
    one = stof.masks.parse("dilated(8, 2) & window(6, 0)")
    results = [eager("llama", None, dtype, sparse=one) for dtype in (MODEL_DTYPE, torch.float32)]
    assert_as_eager(got, *results, MODEL_DTYPE)


def test_a_mask_per_head():
    masks = stof.masks.per_head([stof.masks.window(i, 0) for i in range(4)])
    headed = make("llama", "stof", MODEL_DTYPE)
    headed.config.stof_mask = masks
    visible = torch.from_numpy(masks.to_dense(13, num_heads=4, batch=2))
    results = []
    for dtype in (MODEL_DTYPE, torch.float32):
        additive = torch.where(visible, 0.0, torch.finfo(dtype).min).to(headed.device, dtype)
        with torch.no_grad():
            results.append(
                model("llama", "eager", dtype)(**inputs("llama"), attention_mask=additive)[0]
            )
    with torch.no_grad():
        assert_as_eager(headed(**inputs("llama"))[0], *results, MODEL_DTYPE)


def test_a_block_ends_and_belongs_to_its_thread():
    ids = inputs("bert")
    seen = {}

    def work():
        with torch.no_grad():
            seen["other"] = model("bert", "stof", MODEL_DTYPE)(**ids)[0]

    with torch.no_grad():
        before = model("bert", "stof", MODEL_DTYPE)(**ids)[0]
        with stof.transformers.sparse_mask("window(1, 1)"):
            inside = model("bert", "stof", MODEL_DTYPE)(**ids)[0]
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
        after = model("bert", "stof", MODEL_DTYPE)(**ids)[0]
    assert torch.equal(before, after) and torch.equal(before, seen["other"])
    assert not torch.equal(before, inside)


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("name", CAUSAL)
def test_decoding_continues_the_mask(name, cache):
    """Positions count from the start of the text, so that steps see what a whole pass sees."""
    from transformers import DynamicCache, StaticCache

    sparse = make(name, "stof", MODEL_DTYPE)
    sparse.config.stof_mask = SPARSE
    ids = inputs(name)["input_ids"]
    past = (
        DynamicCache(config=sparse.config)
        if cache == "dynamic"
        else StaticCache(config=sparse.config, max_cache_len=16)
    )
    steps, start = [], 0
    with torch.no_grad():
        for size in (8, 1, 3, 1):
            positions = torch.arange(start, start + size, device=ids.device)[None]
            steps.append(
                sparse(
                    ids[:, start : start + size], past_key_values=past, position_ids=positions
                ).logits
            )
            start += size
    results = [eager(name, None, dtype) for dtype in (MODEL_DTYPE, torch.float32)]
    assert_as_eager(torch.cat(steps, 1), *results, MODEL_DTYPE)


def test_cross_attention_is_left_as_it_is():
    """The mask of an encoder-decoder holds for the stack whose config has it."""
    t5 = make("t5", "stof", MODEL_DTYPE)
    given = inputs("t5")
    with torch.no_grad():
        plain = t5(**given)[0]
        t5.decoder.config.stof_mask = stof.masks.all()
        assert torch.equal(t5(**given)[0], plain)
        t5.decoder.config.stof_mask = stof.masks.window(-1, 0)  # hides nothing of a causal decoder
        assert_as_eager(t5(**given)[0], plain, plain, MODEL_DTYPE)
        t5.encoder.config.stof_mask = stof.masks.window(1, 1)
        changed = t5(**given)[0]
    visible = torch.from_numpy(stof.masks.window(1, 1).to_dense(13))
    results = []
    for dtype in (MODEL_DTYPE, torch.float32):
        eager_t5 = model("t5", "eager", dtype)
        additive = torch.where(visible, 0.0, torch.finfo(dtype).min).to(t5.device, dtype)
        with torch.no_grad():
            encoded = eager_t5.encoder(
                given["input_ids"], attention_mask=additive.expand(2, 1, 13, 13)
            )
            results.append(
                eager_t5(encoder_outputs=encoded, decoder_input_ids=given["decoder_input_ids"])[0]
            )
    assert_as_eager(changed, *results, MODEL_DTYPE)


@pytest.mark.parametrize(
    "wrong",
    [5, torch.ones(3, 3, dtype=torch.bool), "", " "],
    ids=["number", "tensor", "empty", "blank"],
)
def test_other_things_are_refused(wrong):
    sparse = make("bert", "stof", MODEL_DTYPE)
    sparse.config.stof_mask = wrong
    with pytest.raises(stof.InvalidArgument, match="config.stof_mask: expected a stof.Mask"):
        sparse(**inputs("bert"))
    with pytest.raises(stof.InvalidArgument, match="mask: expected a stof.Mask"):
        with stof.transformers.sparse_mask(wrong):
            pass


def test_a_mask_of_other_lengths_is_refused():
    sparse = make("bert", "stof", MODEL_DTYPE)
    sparse.config.stof_mask = stof.masks.dense(torch.ones(8, 8, dtype=torch.bool))
    with pytest.raises(stof.InvalidArgument, match="13"):
        with torch.no_grad():
            sparse(**inputs("bert"))


def test_an_open_block_is_refused_by_compiled_models():
    torch._dynamo.reset()
    compiled = torch.compile(model("bert", "stof", MODEL_DTYPE), fullgraph=True, backend="eager")
    with torch.no_grad(), stof.transformers.sparse_mask("window(1, 1)"):
        with pytest.raises(Exception, match="set model.config.stof_mask instead"):
            compiled(**inputs("bert"))


@pytest.mark.parametrize("compile", [False, True])
@pytest.mark.parametrize("how", ["object", "text", "block"])
@pytest.mark.parametrize("additive", [False, True])
def test_joined_with_a_mask_of_four_dimensions(additive, how, compile):
    """The model's mask function is not asked there."""
    sparse = make("bert", "stof", MODEL_DTYPE)
    given = padding("left").bool()[:, None, None, :].expand(2, 1, 13, 13)
    if additive:
        given = torch.where(given, 0.0, torch.finfo(MODEL_DTYPE).min).to(MODEL_DTYPE)
    run = sparse
    if compile:
        torch._dynamo.reset()
        run = torch.compile(sparse, fullgraph=True, backend="aot_eager")
    with torch.no_grad():
        if how == "block":
            with stof.transformers.sparse_mask(SPARSE):
                if compile:
                    with pytest.raises(Exception, match="set model.config.stof_mask instead"):
                        run(**inputs("bert"), attention_mask=given)
                    return
                got = run(**inputs("bert"), attention_mask=given)[0]
        else:
            sparse.config.stof_mask = SPARSE if how == "object" else TEXT_OF_SPARSE
            got = run(**inputs("bert"), attention_mask=given)[0]
    mask = padding("left")
    assert_as_eager(got, eager("bert", mask, MODEL_DTYPE), eager("bert", mask, torch.float32),
                    MODEL_DTYPE, keep=mask)  # fmt: skip


class Module(torch.nn.Module):
    def __init__(self, is_causal, **fields):
        super().__init__()
        self.is_causal = is_causal
        self.config = SimpleNamespace(**fields)


@pytest.mark.parametrize("compile", [False, True])
@pytest.mark.parametrize("is_causal", [False, True])
def test_joined_where_a_module_hands_no_mask(is_causal, compile):
    q, k, v = (randn(2, 4, 13, 16, seed=i) for i in range(3))
    module, call = Module(is_causal, stof_mask=TEXT_OF_SPARSE), stof_attention
    if compile:
        torch._dynamo.reset()
        call = torch.compile(stof_attention, fullgraph=True, backend="aot_eager")
    visible = torch.from_numpy(SPARSE.to_dense(13))
    if is_causal:
        visible = visible & torch.ones(13, 13, dtype=torch.bool).tril()
    with torch.no_grad():
        out, _ = call(module, q, k, v, None)
    assert_close(out.transpose(1, 2), reference(q, k, v, visible)[0])


@pytest.mark.parametrize("lengths", [(1, 7), (3, 7)])
@pytest.mark.parametrize("kind", ["tensor", "none"])
def test_positions_that_cannot_be_told_are_refused(kind, lengths):
    q, k = (randn(1, 2, n, 16) for n in lengths)
    mask = torch.ones(1, 1, *lengths, dtype=torch.bool, device=q.device)
    mask = mask if kind == "tensor" else None
    with pytest.raises(stof.InvalidArgument, match="positions of the sparse mask"):
        stof_attention(Module(False, stof_mask=TEXT_OF_SPARSE), q, k, k, mask)
    stof_attention(Module(False), q, k, k, mask)
    cross = Module(False, stof_mask=TEXT_OF_SPARSE)
    cross.is_decoder = True
    stof_attention(cross, q, k, k, mask)
