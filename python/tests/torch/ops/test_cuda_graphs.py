"""CUDA graphs and streams."""

import pytest
import torch

import stof
from comparing import DEVICE, DTYPE, ON_GPU, assert_close, randn, reference

pytestmark = pytest.mark.skipif(not ON_GPU, reason="CUDA graphs need a GPU")

MASK = stof.masks.causal() & stof.masks.window(100, 0)
SEQ = 1000


def qkv(seq=SEQ, seed=0):
    return tuple(randn(1, 2, seq, 64, seed=seed + i) for i in range(3))


def expected(q, k, v):
    return reference(q, k, v, torch.from_numpy(MASK.to_dense(q.shape[2])))[0]


def warm(function, times=3):
    """Runs on a side stream, as torch asks for before capturing."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(times):
            function()
    torch.cuda.current_stream().wait_stream(side)


def captured(function):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = function()
    return graph, out


def check_replays(run):
    q, k, v = qkv()
    warm(lambda: run(q, k, v))
    graph, out = captured(lambda: run(q, k, v))
    for seed in (10, 20):
        for place, values in zip((q, k, v), qkv(seed=seed)):
            place.copy_(values)
        out.fill_(float("nan"))
        graph.replay()
        assert_close(out, expected(q, k, v))


def test_attention_is_captured():
    check_replays(lambda q, k, v: stof.attention(q, k, v, MASK))


def test_a_plan_is_captured():
    plan = stof.plan(MASK, batch=1, num_heads=2, seq_q=SEQ, head_dim=64, dtype=DTYPE, device=DEVICE)
    check_replays(plan.run)


def test_compiled_attention_is_captured():
    torch._dynamo.reset()
    check_replays(torch.compile(lambda q, k, v: stof.attention(q, k, v, MASK), fullgraph=True))


def test_reduce_overhead():
    torch._dynamo.reset()
    run = torch.compile(
        lambda q, k, v: stof.attention(q, k, v, MASK) + 1, fullgraph=True, mode="reduce-overhead"
    )
    for seed in range(5):
        q, k, v = qkv(seed=seed)
        torch.compiler.cudagraph_mark_step_begin()
        assert_close(run(q, k, v).clone(), expected(q, k, v) + 1)


def test_a_graph_and_its_stream_share_nothing():
    q, k, v = qkv()
    warm(lambda: stof.attention(q, k, v, MASK))
    graph, out = captured(lambda: stof.attention(q, k, v, MASK))
    other = qkv(seed=30)
    graph.replay()
    eager = stof.attention(*other, MASK)
    assert_close(out, expected(q, k, v))
    assert_close(eager, expected(*other))


def test_graphs_of_calls_alike_replay_in_turn():
    operands = [qkv(seed=60), qkv(seed=70)]
    warm(lambda: stof.attention(*operands[0], MASK))
    recorded = [captured(lambda given=given: stof.attention(*given, MASK)) for given in operands]
    for _ in range(3):
        for _, out in recorded:
            out.fill_(float("nan"))
        for graph, _ in recorded:
            graph.replay()
        for (_, out), given in zip(recorded, operands):
            assert_close(out, expected(*given))


@pytest.mark.parametrize("seq_q, seq_kv", [(1000, 1000), (16, 8192)])
def test_graphs_of_a_plan_each_replay_at_the_same_time(seq_q, seq_kv):
    shape = dict(batch=1, num_heads=2, seq_q=seq_q, seq_kv=seq_kv, head_dim=64, return_lse=True)
    recorded, wanted, kept = [], [], []
    for seed in (80, 90):
        q, (_, k, v) = randn(1, 2, seq_q, 64, seed=seed), qkv(seq_kv, seed)
        plan = stof.plan(stof.masks.all(), **shape, dtype=DTYPE, device=DEVICE)
        warm(lambda plan=plan, given=(q, k, v): plan.run(*given))
        recorded.append(captured(lambda plan=plan, given=(q, k, v): plan.run(*given)))
        wanted.append(reference(q, k, v, torch.ones(seq_q, seq_kv, dtype=torch.bool)))
        kept.append((plan, q, k, v))  # graphs hold addresses, not tensors
    streams = [torch.cuda.Stream() for _ in recorded]
    torch.cuda.synchronize()
    for _ in range(20):
        for stream, (graph, _) in zip(streams, recorded):
            with torch.cuda.stream(stream):
                graph.replay()
    torch.cuda.synchronize()
    for (_, got), want in zip(recorded, wanted):
        for result, right in zip(got, want):
            assert_close(result, right)


def test_planning_while_capturing_says_what_to_do():
    q, k, v = qkv(seq=777)
    graph = torch.cuda.CUDAGraph()
    with pytest.raises(stof.StofError, match="before"):
        with torch.cuda.graph(graph):
            q.mul_(1)
            stof.attention(q, k, v, MASK)
    torch.cuda.synchronize()
    assert_close(stof.attention(q, k, v, MASK), expected(q, k, v))


def test_streams():
    streams = [torch.cuda.Stream() for _ in range(3)]
    operands = [qkv(seed=40 + i) for i in range(3)]
    torch.cuda.synchronize()
    outs = []
    for _ in range(4):
        outs = []
        for stream, (q, k, v) in zip(streams, operands):
            with torch.cuda.stream(stream):
                outs.append(stof.attention(q, k, v, MASK))
    torch.cuda.synchronize()
    for out, (q, k, v) in zip(outs, operands):
        assert_close(out, expected(q, k, v))


def test_work_waits_for_the_current_stream():
    q, k, v = (torch.zeros(1, 2, SEQ, 64, device=DEVICE, dtype=DTYPE) for _ in range(3))
    values = qkv(seed=50)
    stof.attention(q, k, v, MASK)
    side = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        torch.cuda._sleep(20_000_000)
        for place, value in zip((q, k, v), values):
            place.copy_(value)
        out = stof.attention(q, k, v, MASK)
    side.synchronize()
    assert_close(out, expected(*values))
