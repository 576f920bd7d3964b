"""Block lists and decoding: right on a GPU, refused with a reason without one."""

import pytest
import torch
from comparing import DEVICE, ON_GPU, assert_close, randn, reference

import stof

HEADS, HEADS_KV, SEQ, DIM = 4, 2, 200, 64
PROBLEM = dict(
    num_heads=HEADS, num_heads_kv=HEADS_KV, head_dim=DIM, dtype=torch.float16, return_lse=True
)


def random_lists(batch, heads, q_blocks, kv_blocks, seed):
    """counts and ids, and the pairs they make visible [batch, heads, SEQ, SEQ]."""
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.rand(batch, heads, q_blocks, kv_blocks, generator=generator) < 0.5
    counts = chosen.sum(-1).int()
    ids = torch.full(chosen.shape, -7, dtype=torch.int32)  # what is past a count is never read
    for index in range(chosen[..., 0].numel()):
        row = chosen.flatten(0, 2)[index].nonzero()[:, 0].flip(0).int()
        ids.flatten(0, 2)[index, : len(row)] = row
    pairs = chosen.repeat_interleave(64, 2)[:, :, :SEQ].repeat_interleave(64, 3)[..., :SEQ]
    return counts.to(DEVICE), ids.to(DEVICE), pairs


def run_block_lists():
    plan = stof.BlockListPlan(batch=2, seq_q=SEQ, device=DEVICE, **PROBLEM)
    q, k, v = (
        randn(2, h, SEQ, DIM, dtype=torch.float16, seed=h) for h in (HEADS, HEADS_KV, HEADS_KV)
    )
    for seed in range(3):
        counts, ids, pairs = random_lists(2, HEADS, 4, 4, seed)
        plan.update(counts, ids)
        out, lse = plan.run(q, k, v)
        plan.check()
        expected, expected_lse = reference(q, k, v, pairs)
        assert_close(out, expected, torch.float16)
        assert_close(lse, expected_lse, torch.float16)
    ids[0, 1, 0, 0], counts[0, 1, 0] = 99, 1
    plan.update(counts, ids)
    with pytest.raises(stof.InvalidArgument, match="99"):
        plan.check()
    plan.update(*random_lists(2, HEADS, 4, 4, 9)[:2])
    plan.check()
    assert "kernel" in plan.facts() and "BlockListPlan" in repr(plan)


def run_in_a_graph():
    plan = stof.BlockListPlan(batch=1, seq_q=SEQ, device=DEVICE, **PROBLEM)
    q, k, v = (
        randn(1, h, SEQ, DIM, dtype=torch.float16, seed=h) for h in (HEADS, HEADS_KV, HEADS_KV)
    )
    counts, ids, _ = random_lists(1, HEADS, 4, 4, 0)
    plan.update(counts, ids)
    plan.run(q, k, v)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        plan.update(counts, ids)
        out, lse = plan.run(q, k, v)
    other_counts, other_ids, pairs = random_lists(1, HEADS, 4, 4, 5)
    counts.copy_(other_counts)
    ids.copy_(other_ids)
    q.copy_(randn(*q.shape, dtype=torch.float16, seed=77))
    graph.replay()
    expected, expected_lse = reference(q, k, v, pairs)
    assert_close(out, expected, torch.float16)
    assert_close(lse, expected_lse, torch.float16)


def visible_of(lengths, seq_q, capacity, left):
    """[batch, 1, seq_q, capacity]: causal from the end of each sequence, and a window."""
    key = torch.arange(capacity)
    query = lengths[:, None] - seq_q + torch.arange(seq_q)
    seen = key <= query[..., None]
    if left is not None:
        seen &= key >= query[..., None] - left
    return seen[:, None]


def run_decoding(page_size, left, seq_q):
    capacity, batch = 160, 3
    plan = stof.DecodePlan(
        batch=batch,
        seq_q=seq_q,
        max_seq_kv=capacity,
        device=DEVICE,
        lengths=True,
        page_size=page_size,
        window=(left, 0),
        **PROBLEM,
    )
    q = randn(batch, HEADS, seq_q, DIM, dtype=torch.float16)
    k, v = (randn(batch, HEADS_KV, capacity, DIM, dtype=torch.float16, seed=s) for s in (1, 2))
    lengths = torch.tensor([seq_q, 97, capacity])
    operands = dict(lengths=lengths.int().to(DEVICE))
    cache_k, cache_v = k, v
    if page_size:
        pages = capacity // page_size
        order = torch.randperm(batch * pages, generator=torch.Generator().manual_seed(3))
        split = (batch, HEADS_KV, pages, page_size, DIM)
        cache_k, cache_v = (
            torch.empty(batch * pages, HEADS_KV, page_size, DIM, dtype=x.dtype, device=DEVICE)
            for x in (k, v)
        )
        for cache, whole in ((cache_k, k), (cache_v, v)):
            cache[order.to(DEVICE)] = whole.reshape(split).transpose(1, 2).reshape(cache.shape)
        operands["page_table"] = order.reshape(batch, pages).int().to(DEVICE)
    out, lse = plan.run(q, cache_k, cache_v, **operands)
    expected, expected_lse = reference(q, k, v, visible_of(lengths, seq_q, capacity, left))
    assert_close(out, expected, torch.float16)
    assert_close(lse, expected_lse, torch.float16)
    assert "kernel" in plan.facts() and "DecodePlan" in repr(plan)


def run_decoding_in_a_graph(left):
    capacity, batch = 160, 3
    plan = stof.DecodePlan(
        batch=batch, max_seq_kv=capacity, device=DEVICE, lengths=True, window=(left, 0), **PROBLEM
    )
    q = randn(batch, HEADS, 1, DIM, dtype=torch.float16)
    k, v = (randn(batch, HEADS_KV, capacity, DIM, dtype=torch.float16, seed=s) for s in (1, 2))
    lengths = torch.tensor([1, 97, capacity], dtype=torch.int32, device=DEVICE)
    plan.run(q, k, v, lengths=lengths)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out, lse = plan.run(q, k, v, lengths=lengths)
    for changed in ([1, 97, capacity], [150, 2, 64]):
        lengths.copy_(torch.tensor(changed, dtype=torch.int32))
        out.fill_(float("nan"))
        graph.replay()
        visible = visible_of(torch.tensor(changed), 1, capacity, left)
        expected, expected_lse = reference(q, k, v, visible)
        assert_close(out, expected, torch.float16)
        assert_close(lse, expected_lse, torch.float16)


if ON_GPU:

    def test_block_lists_change_from_call_to_call():
        run_block_lists()

    def test_block_lists_in_a_graph():
        run_in_a_graph()

    @pytest.mark.parametrize("page_size", [0, 16])
    @pytest.mark.parametrize("left", [None, 30])
    @pytest.mark.parametrize("seq_q", [1, 5])
    def test_decoding(page_size, left, seq_q):
        run_decoding(page_size, left, seq_q)

    @pytest.mark.parametrize("left", [None, 3])
    def test_decoding_in_a_graph_whose_lengths_change(left):
        run_decoding_in_a_graph(left)

    def test_decoding_with_a_mask():
        mask = stof.masks.causal() & stof.masks.dilated(40, 2)
        plan = stof.DecodePlan(batch=1, max_seq_kv=100, mask=mask, device=DEVICE, **PROBLEM)
        q, k, v = (
            randn(1, h, s, DIM, dtype=torch.float16, seed=h)
            for h, s in ((HEADS, 1), (HEADS_KV, 100), (HEADS_KV, 100))
        )
        key = torch.arange(100)
        pairs = ((99 - key <= 40) & ((99 - key) % 2 == 0))[None, None, None]
        out, _ = plan.run(q, k, v)
        assert_close(out, reference(q, k, v, pairs)[0], torch.float16)

    def test_operands_of_another_place_are_refused():
        plan = stof.DecodePlan(batch=1, max_seq_kv=100, device=DEVICE, **PROBLEM)
        q = torch.zeros(1, HEADS, 1, DIM, dtype=torch.float16)
        with pytest.raises(stof.InvalidArgument, match="q: expected memory of cuda:0"):
            plan.run(q, q, q)

else:

    def test_without_a_gpu_what_is_missing_is_said():
        with pytest.raises(stof.NotFound, match="driver"):
            stof.BlockListPlan(batch=1, seq_q=SEQ, **PROBLEM)
        with pytest.raises(stof.NotFound, match="driver"):
            stof.DecodePlan(batch=1, max_seq_kv=SEQ, **PROBLEM)
        with pytest.raises(stof.NotFound, match="driver"):
            stof.plan("causal", batch=1, seq_q=SEQ, device="cuda", **PROBLEM)


def test_the_cpu_is_refused():
    with pytest.raises(stof.Unsupported, match="stof.plan"):
        stof.BlockListPlan(batch=1, seq_q=SEQ, **{**PROBLEM, "device": "cpu"})
    with pytest.raises(stof.Unsupported, match="stof.plan"):
        stof.DecodePlan(batch=1, max_seq_kv=SEQ, **{**PROBLEM, "device": "cpu"})


@pytest.mark.parametrize(
    "changed, words",
    [
        (dict(num_heads_kv=3), "num_heads_kv: expected a divisor"),
        (dict(dtype="int8"), "dtype: expected"),
        (dict(per_kv_head=2), "per_kv_head: expected True or False"),
        (dict(expected_share=2.0), "expected_share"),
        (dict(scale=-1.0), "scale"),
    ],
)
def test_wrong_block_lists_are_refused(changed, words):
    with pytest.raises(stof.InvalidArgument, match=words):
        stof.BlockListPlan(**{**dict(batch=1, seq_q=SEQ), **PROBLEM, **changed})


@pytest.mark.parametrize(
    "changed, words",
    [
        (dict(seq_q=17), "seq_q"),
        (dict(window=(1, 2, 3)), "window: expected"),
        (dict(window=(-1, 0)), r"window\[0\]: expected 0 to"),
        (dict(page_size=17), "page_size"),
        (dict(page_size=torch.ones(2)), "page_size: expected a whole number"),
        (dict(sink_tokens=1.5), "sink_tokens: expected a whole number"),
        (dict(window=(1.5, 0)), "window.* expected a whole number"),
        (dict(lengths=torch.ones(1).int()), "lengths: expected True or False"),
        (dict(mask=torch.ones(1)), "mask: expected"),
        (dict(mask="causl"), "unknown mask"),
    ],
)
def test_wrong_decoding_is_refused(changed, words):
    with pytest.raises((stof.InvalidArgument, stof.Unsupported), match=words):
        stof.DecodePlan(**{**dict(batch=1, max_seq_kv=SEQ), **PROBLEM, **changed})


def test_a_gpu_that_is_not_there_is_not_found():
    missing = torch.cuda.device_count()
    with pytest.raises(stof.NotFound, match=f"GPU {missing}: this machine has" if ON_GPU else ""):
        stof.plan(
            "causal",
            batch=1,
            num_heads=1,
            seq_q=9,
            head_dim=16,
            dtype="float16",
            device=f"cuda:{missing}",
        )
