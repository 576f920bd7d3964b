"""Tensors on a GPU that is not torch's current one, and on two at once."""

import copy
import pickle
import threading

import pytest
import torch
from comparing import assert_close, randn, reference

import stof
from stof import masks

pytestmark = pytest.mark.skipif(
    torch.cuda.device_count() < 2, reason=f"needs two GPUs, found {torch.cuda.device_count()}"
)
FIRST, SECOND = torch.device("cuda", 0), torch.device("cuda", 1)
DTYPE = torch.bfloat16
SHAPE = dict(batch=2, num_heads=4, seq_q=150, head_dim=64, dtype=DTYPE)
MASK = masks.causal() & masks.window(40, 0)


@pytest.fixture(autouse=True)
def current_device_stays():
    torch.cuda.set_device(FIRST)
    yield
    assert torch.cuda.current_device() == 0


def qkv(device, seed=0):
    return tuple(randn(2, 4, 150, 64, dtype=DTYPE, seed=seed + i).to(device) for i in range(3))


def check(out, operands, device, mask=MASK):
    assert out.device == device
    visible = torch.from_numpy(mask.to_dense(150)).to(device)
    assert_close(out, reference(*operands, visible)[0], DTYPE)


def test_where_the_tensors_are():
    """The first call, one that is known, and both GPUs in turn, of one mask object."""
    for _ in range(3):
        for device in (SECOND, FIRST, SECOND):
            operands = qkv(device)
            check(stof.attention(*operands, MASK), operands, device)
    with torch.cuda.device(SECOND):
        operands = qkv(FIRST, 5)
        check(stof.attention(*operands, MASK), operands, FIRST)
        assert torch.cuda.current_device() == 1


def test_plans_have_one_device():
    plan = stof.plan(MASK, device=SECOND, **SHAPE)
    operands = qkv(SECOND)
    for _ in range(2):
        check(plan.run(*operands), operands, SECOND)
        with torch.cuda.device(SECOND):
            check(plan.run(*operands), operands, SECOND)
    assert plan.device == "cuda:1"
    with torch.cuda.device(SECOND):  # "cuda" is the current one
        assert stof.plan(MASK, device="cuda", **SHAPE).device == "cuda:1"
    assert stof.plan(MASK, device="cuda", **SHAPE).device == "cuda:0"
    for other in (pickle.loads(pickle.dumps(plan)), copy.deepcopy(plan)):
        check(other.run(*operands), operands, SECOND)
    with pytest.raises(stof.InvalidArgument, match="q: expected memory of cuda:1.*got cuda:0"):
        plan.run(*qkv(FIRST))


def test_mixed_devices_are_refused():
    here, there = qkv(FIRST), qkv(SECOND)
    seen = torch.ones(150, 150, dtype=torch.bool, device=SECOND)
    for call, message in (
        (
            lambda: stof.attention(here[0], there[1], here[2]),
            "k: expected memory of cuda:0.*cuda:1",
        ),
        (
            lambda: stof.attention(there[0], there[1], here[2]),
            "v: expected memory of cuda:1.*cuda:0",
        ),
        (lambda: stof.attention(*here, seen), "mask: expected .* on cuda:0 .* on cuda:1"),
        (
            lambda: stof.attention(*there, sink=torch.zeros(4, device=FIRST)),
            "sink: expected memory of cuda:1.*got cuda:0",
        ),
        (
            lambda: stof.plan(MASK, device=SECOND, **SHAPE).run(*there, out=here[0]),
            "out: expected memory of cuda:1.*got cuda:0",
        ),
    ):
        for _ in range(2):
            with pytest.raises(stof.InvalidArgument, match=message):
                call()
    # Known calls do not take operands of another device either.
    plan = stof.plan(MASK, device=FIRST, **SHAPE)
    plan.run(*here)
    with pytest.raises(stof.InvalidArgument, match="v: expected memory of cuda:0.*got cuda:1"):
        plan.run(here[0], here[1], there[2])


def test_streams_of_the_other_gpu():
    """Work waits for what was queued on the stream of its own GPU."""
    plan = stof.plan(MASK, device=SECOND, **SHAPE)
    values, side = qkv(SECOND), torch.cuda.Stream(SECOND)
    late = tuple(torch.zeros_like(x) for x in values)
    torch.cuda.synchronize(SECOND)
    with torch.cuda.stream(side):
        torch.cuda._sleep(20_000_000)
        for target, source in zip(late, values):
            target.copy_(source)
        torch.cuda.set_device(FIRST)  # the stream of SECOND stays its current one
        assert torch.cuda.current_stream(SECOND) == side
        results = [plan.run(*late), stof.attention(*late, MASK)]
    side.synchronize()
    results.append(plan.run(*late, stream=side.cuda_stream))
    side.synchronize()
    for out in results:
        check(out, values, SECOND)


def test_threads_with_a_gpu_each():
    results, failures = {}, []

    def work(device):
        try:
            torch.cuda.set_device(device)
            for seed in range(20):
                operands = qkv(device, seed)
                results[device, seed] = operands, stof.attention(*operands, MASK)
        except Exception as error:  # reported by the main thread
            failures.append(error)

    threads = [threading.Thread(target=work, args=(device,)) for device in (FIRST, SECOND)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    for (device, _), (operands, out) in results.items():
        check(out, operands, device)


def test_cuda_graphs_and_boolean_masks():
    operands = qkv(SECOND)
    seen = torch.from_numpy(MASK.to_dense(150)).to(SECOND)
    check(stof.attention(*operands, seen), operands, SECOND)
    plan = stof.plan(MASK, device=SECOND, **SHAPE)
    with torch.cuda.device(SECOND):
        plan.run(*operands)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = plan.run(*operands)
        operands[0].neg_()
        graph.replay()
        torch.cuda.synchronize()
    check(out, operands, SECOND)


def test_packed_sequences_and_operators():
    rows = [x[0].transpose(0, 1).contiguous() for x in qkv(SECOND)]
    starts = torch.tensor([0, 40, 150], dtype=torch.int32, device=SECOND)
    out = stof.varlen_attention(*rows, starts, mask="causal")
    own = masks.causal() & masks.document([40, 110])
    check(out.transpose(0, 1)[None], [x.transpose(0, 1)[None] for x in rows], SECOND, own)
    operands = qkv(SECOND)
    run = torch.compile(lambda q, k, v: stof.attention(q, k, v, MASK), fullgraph=True)
    check(run(*operands), operands, SECOND)


def test_flex_attention():
    from stof.compat.flex import TraceWarning, create_block_mask, flex_attention

    operands, document = qkv(SECOND), torch.arange(150, device=SECOND) // 64
    mask_mod = lambda b, h, q, kv: (document[q] == document[kv]) & (q >= kv)  # noqa: E731
    block_mask = create_block_mask(mask_mod, None, None, 150, 150, device=SECOND)
    own = masks.causal() & masks.document([64, 64, 22])
    check(flex_attention(*operands, block_mask=block_mask), operands, SECOND, own)
    with pytest.warns(TraceWarning):
        out = flex_attention(*operands, lambda s, *_: torch.special.i0(s) * 0 + s, block_mask)
    check(out, operands, SECOND, own)


def test_block_lists_and_decoding():
    q, k, v = qkv(SECOND)
    plan = stof.BlockListPlan(device=SECOND, **SHAPE)
    counts = torch.ones(2, 4, 3, dtype=torch.int32, device=SECOND)
    ids = torch.arange(3, dtype=torch.int32, device=SECOND).view(3, 1).repeat(2, 4, 1, 1)
    for _ in range(2):
        plan.update(counts, ids)
        check(plan.run(q, k, v), (q, k, v), SECOND, masks.document([64, 64, 22]))
    decode = stof.DecodePlan(
        batch=2, num_heads=4, max_seq_kv=150, head_dim=64, dtype=DTYPE, device=SECOND
    )
    for _ in range(2):
        out = decode.run(q[:, :, :1], k, v)
        seen = torch.ones(1, 150, dtype=torch.bool, device=SECOND)
        assert out.device == SECOND
        assert_close(out, reference(q[:, :, :1], k, v, seen)[0], DTYPE)
    with pytest.raises(stof.InvalidArgument, match="expected memory of cuda:1.*got cuda:0"):
        decode.run(q[:, :, :1].to(FIRST), k, v)
