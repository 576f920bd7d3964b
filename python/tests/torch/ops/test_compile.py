"""torch.compile: whole graphs, dynamic shapes, masks and plans of every kind."""

import pytest
import torch
import torch._dynamo.testing

import stof
from comparing import DEVICE, DTYPE, TORCH, assert_close, randn, reference, when_compiled

MASK = stof.masks.causal() & stof.masks.window(5, 0)


def visible(mask, seq_q, seq_kv=None, **options):
    return torch.from_numpy(mask.to_dense(seq_q, seq_kv, **options))


def qkv(seq=33, batch=2, heads=4, heads_kv=4, dim=16, dtype=DTYPE):
    return (
        randn(batch, heads, seq, dim, dtype=dtype, seed=1),
        randn(batch, heads_kv, seq, dim, dtype=dtype, seed=2),
        randn(batch, heads_kv, seq, dim, dtype=dtype, seed=3),
    )


def compiled(function, **options):
    torch._dynamo.reset()
    return torch.compile(function, fullgraph=True, **options)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("mask", [MASK, "causal & window(5, 0)"], ids=["object", "text"])
def test_attention_is_one_graph(backend, mask):
    q, k, v = qkv()
    run = compiled(lambda q, k, v: stof.attention(q * 2, k, v, mask) + 1, backend=backend)
    expected, _ = reference(q * 2, k, v, visible(MASK, 33))
    assert_close(run(q, k, v), expected + 1)


def test_one_graph_serves_all_shapes():
    frames = torch._dynamo.testing.CompileCounter()
    run = compiled(lambda q, k, v: stof.attention(q, k, v, MASK), dynamic=True, backend=frames)
    for seq, batch in ((33, 2), (40, 3), (57, 5)):
        q, k, v = qkv(seq, batch)
        assert_close(run(q, k, v), reference(q, k, v, visible(MASK, seq))[0])
    assert frames.frame_count == 1


def test_inductor_with_dynamic_shapes():
    run = compiled(lambda q, k, v: stof.attention(q, k, v, MASK).relu(), dynamic=True)
    for seq in (17, 64, 65):
        q, k, v = qkv(seq)
        assert_close(run(q, k, v), reference(q, k, v, visible(MASK, seq))[0].relu())


def test_options_and_operands():
    q, k, v = qkv(heads=4, heads_kv=2)
    bias, sink = randn(1, 4, 33, 33, dtype=torch.float32), randn(4, dtype=torch.float32)

    def call(q, k, v, bias, sink):
        return stof.attention(
            q,
            k,
            v,
            MASK,
            enable_gqa=True,
            scale=0.3,
            softcap=4.0,
            bias=bias,
            sink=sink,
            return_lse=True,
        )

    out, lse = compiled(call)(q, k, v, bias, sink)
    expected = reference(q, k, v, visible(MASK, 33), 0.3, 4.0, bias, sink)
    assert_close(out, expected[0])
    assert_close(lse, expected[1])


def test_bottom_right():
    q, k, v = randn(1, 2, 3, 16), randn(1, 2, 20, 16, seed=1), randn(1, 2, 20, 16, seed=2)
    run = compiled(lambda q, k, v: stof.attention(q, k, v, MASK, alignment="bottom_right"))
    assert_close(
        run(q, k, v), reference(q, k, v, visible(MASK, 3, 20, alignment="bottom_right"))[0]
    )


def test_another_mask_is_another_graph():
    q, k, v = qkv()
    run = compiled(lambda q, k, v, mask: stof.attention(q, k, v, mask))
    for mask in (MASK, stof.masks.causal(), MASK):
        assert_close(run(q, k, v, mask), reference(q, k, v, visible(mask, 33))[0])


@pytest.mark.parametrize("return_lse", [False, True])
def test_a_plan_is_run(return_lse):
    q, k, v = qkv()
    plan = stof.plan(
        MASK,
        batch=2,
        num_heads=4,
        seq_q=33,
        head_dim=16,
        dtype=DTYPE,
        device=DEVICE,
        return_lse=return_lse,
    )
    result = compiled(lambda q, k, v: plan.run(q * 1, k, v))(q, k, v)
    expected = reference(q, k, v, visible(MASK, 33))
    assert_close(result[0] if return_lse else result, expected[0])
    if return_lse:
        assert_close(result[1], expected[1])


def test_a_plan_writes_out():
    q, k, v = qkv()
    plan = stof.plan(MASK, batch=2, num_heads=4, seq_q=33, head_dim=16, dtype=DTYPE, device=DEVICE)
    out = torch.full_like(q, float("nan"))
    result = compiled(lambda q, k, v, out: plan.run(q, k, v, out=out))(q, k, v, out)
    assert result.data_ptr() == out.data_ptr()
    assert_close(out, reference(q, k, v, visible(MASK, 33))[0])


def test_a_plan_refuses_other_shapes():
    plan = stof.plan(MASK, batch=2, num_heads=4, seq_q=33, head_dim=16, dtype=DTYPE, device=DEVICE)
    with pytest.raises(Exception, match=r"expected shape \[2, 4, 33, 16\], got \[2, 4, 32, 16\]"):
        compiled(lambda q, k, v: plan.run(q, k, v))(*qkv(32))


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_inference_modes(context):
    q, k, v = qkv()
    q.requires_grad_()
    expected, _ = reference(q.detach(), k, v, visible(MASK, 33))
    with context():
        assert_close(stof.attention(q, k, v, MASK), expected)
        run = compiled(lambda q, k, v: stof.attention(q, k, v, MASK))
        if context is torch.no_grad and TORCH < (2, 5):  # docs/python.md says so
            with pytest.raises(stof.Unsupported, match="q: expected tensors without gradients"):
                run(q, k, v)
            q = q.detach()
        assert_close(run(q, k, v), expected)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("which", range(3))
def test_gradients_are_refused(backend, which):
    operands = list(qkv())
    operands[which] = operands[which].requires_grad_()
    message = "expected tensors without gradients because stof has no backward pass"
    with pytest.raises(stof.Unsupported, match=message):
        stof.attention(*operands, MASK)
    with pytest.raises(Exception, match=message):
        compiled(lambda q, k, v: stof.attention(q, k, v, MASK), backend=backend)(*operands)
    plan = stof.plan(MASK, batch=2, num_heads=4, seq_q=33, head_dim=16, dtype=DTYPE, device=DEVICE)
    with pytest.raises(Exception, match=message):
        compiled(lambda q, k, v: plan.run(q, k, v), backend=backend)(*operands)


def test_gradients_of_weights_are_refused():
    """The operands come of a parameter inside the graph."""
    layer = torch.nn.Linear(16, 16, device=DEVICE, dtype=DTYPE)
    q, k, v = qkv()
    run = compiled(lambda q, k, v: stof.attention(layer(q), k, v, MASK))
    with pytest.raises(Exception, match="no backward pass"):
        run(q, k, v)
    with torch.no_grad():
        assert_close(run(q, k, v), reference(layer(q), k, v, visible(MASK, 33))[0])


def test_recorded_calls_refuse_what_they_cannot_do():
    q, k, v = qkv()
    plan = stof.plan(MASK, batch=2, num_heads=4, seq_q=33, head_dim=16, dtype=DTYPE, device=DEVICE)
    for call, message in (
        (lambda q, k, v: plan.run(q, k, v, stream=1), "stream: expected None"),
        (lambda q, k, v: plan.run(q, k, v, num_threads=2), "num_threads: expected 0"),
        (lambda q, k, v: stof.attention(q, k, v, plan=plan), "plan: expected None"),
        (lambda q, k, v: stof.attention(q, k[:, :2], v[:, :2]), "pass enable_gqa=True"),
        (lambda q, k, v: stof.attention(q[0], k, v), "q: expected"),
    ):
        with pytest.raises(Exception, match=message):
            compiled(call)(q, k, v)


def test_a_mask_that_is_gone():
    q, k, v = qkv()
    with pytest.raises(stof.InvalidArgument, match="mask: expected one that is alive"):
        torch.ops.stof.attention(
            q,
            k,
            v,
            "#gone/1",
            None,
            None,
            None,
            0,
            0,
            "top_left",
            None,
            0.0,
            None,
            None,
            None,
            None,
            0,
            True,
            None,
            "",
            [],
            False,
        )


def test_score_modifications():
    """Tables are operands of the graph: new values need no new graph."""
    q, k, v = qkv()
    table = randn(4, dtype=torch.float32)
    modification = stof.ScoreMod("score * 0.5 + slope[h]", {"slope": table})
    frames = torch._dynamo.testing.CompileCounter()
    run = compiled(
        lambda q, k, v: stof.attention(q, k, v, MASK, score_mod=modification), backend=frames
    )
    for value in (table.clone(), -table.clone()):
        table.copy_(value)
        bias = 0.5 * value.view(1, 4, 1, 1).expand(1, 4, 33, 33) * 2
        expected, _ = reference(q, k, v, visible(MASK, 33), 0.5 * 16**-0.5, bias=bias)
        assert_close(run(q, k, v), expected)
    assert frames.frame_count == 1
    plain = compiled(lambda q, k, v: stof.attention(q, k, v, MASK, score_mod="score * 0.5"))
    assert_close(plain(q, k, v), reference(q, k, v, visible(MASK, 33), 0.5 * 16**-0.5)[0])


def test_gradients_of_other_operands_are_refused():
    """Not those of q, k and v alone."""
    q, k, v = qkv()
    mine = lambda *shape: randn(*shape, dtype=torch.float32).requires_grad_()
    table, bias = mine(4), mine(1, 1, 33, 33)
    buckets = stof.PositionBias(table=mine(8, 4))
    scores = stof.ScoreMod("score + t[h]", {"t": table})
    for name, options in (
        ("score_tables", dict(score_mod=scores)),
        ("bias", dict(bias=bias)),
        ("alibi", dict(alibi=table)),
        ("position_bias.table", dict(position_bias=buckets)),
    ):
        run = compiled(lambda q: stof.attention(q, k, v, MASK, **options), backend="aot_eager")
        with pytest.raises(Exception, match=name + ": expected tensors without gradients"):
            run(q)
        with torch.no_grad():
            assert_close(run(q), stof.attention(q, k, v, MASK, **options))


def refused(call, message, kind="InvalidArgument"):
    with pytest.raises(Exception, match=when_compiled(message)) as caught:
        compiled(call)()
    assert kind in f"{type(caught.value).__name__} {caught.value}"


def test_operands_that_a_plan_was_not_made_for_are_refused():
    """As eager calls do; a copy would convert and broadcast them."""
    q, k, v = qkv()
    options = dict(batch=2, num_heads=4, seq_q=33, head_dim=16, dtype=DTYPE, device=DEVICE)
    plan, sums = stof.plan(MASK, **options), stof.plan(MASK, return_lse=True, **options)
    lse = q.new_full((2, 4, 33), 7.0, dtype=torch.float32)
    for chosen, given, message in (
        (plan, dict(out=q.double()), "out: expected dtype torch.* got torch.float64"),
        (plan, dict(out=q.new_full((2, 2, 4, 33, 16), 7.0)), r"out: expected shape \[2, 4, 33, 16"),
        (plan, dict(lse=lse), "lse: expected none because the plan was made without return_lse"),
        (sums, dict(lse=lse.half()), "lse: expected dtype torch.float32, got torch.float16"),
        (sums, dict(lse=lse[:, :1].expand(2, 1, 33)), r"lse: expected shape \[2, 4, 33\], got"),
    ):
        refused(lambda: chosen.run(q, k, v, **given), message)
        with pytest.raises(stof.InvalidArgument):
            chosen.run(q, k, v, **given)
    assert bool((lse == 7).all())


def test_buckets_that_the_table_has_not():
    q, k, v = qkv()
    for rows, buckets in ((8, 4), (4, 8)):
        bias = stof.PositionBias(buckets, table=randn(rows, 4, dtype=torch.float32))
        message = rf"position_bias.table: expected shape \[{buckets}, num_heads\], got \[{rows}, 4"
        refused(lambda: stof.attention(q, k, v, MASK, position_bias=bias), message)
        with pytest.raises(stof.InvalidArgument, match=message):
            stof.attention(q, k, v, MASK, position_bias=bias)


@pytest.mark.parametrize(
    "options, message",
    [
        (dict(mask=""), "mask, column 1: expected a mask, got the end of the text"),
        (dict(score_mod=""), "score_mod: expected an expression"),
    ],
)
def test_empty_text_is_not_none(options, message):
    q, k, v = qkv()
    with pytest.raises(stof.InvalidArgument, match=message):
        stof.attention(q, k, v, **options)
    refused(lambda: stof.attention(q, k, v, **options), message)
    if "mask" in options:
        rows, starts = q[0].transpose(0, 1), torch.tensor([0, 33], device=DEVICE)
        refused(lambda: stof.varlen_attention(rows, rows, rows, starts, mask=""), message)


def test_other_objects_are_refused_by_name():
    q, k, v = qkv()
    for name in ("enable_gqa", "return_lse"):
        message = f"{name}: expected True or False, got 1"
        refused(lambda: stof.attention(q, k, v, **{name: 1}), message)
    refused(lambda: stof.attention(q, k, v, score_mod=5), "score_mod: expected a stof.ScoreMod")
    visible = torch.ones(33, 33, dtype=torch.bool, device=DEVICE)
    table = randn(8, 4, dtype=torch.float32)
    refused(lambda: stof.attention(q, k, v, visible), "mask: .*got a tensor", "Unsupported")
    refused(lambda: stof.attention(q, k, v, 5), "mask: expected a stof.Mask.*got int")
    message = "position_bias: expected a stof.PositionBias, got Tensor"
    refused(lambda: stof.attention(q, k, v, position_bias=table), message)
    message = "sink: expected a torch tensor.*list"
    refused(lambda: stof.attention(q, k, v, sink=[0.0] * 4), message, "Unsupported")
    meta = torch.empty(2, 4, 33, 16, dtype=DTYPE, device="meta")
    with pytest.raises(stof.Unsupported, match="mask: .*got a tensor"):
        stof.attention(meta, meta, meta, visible)
