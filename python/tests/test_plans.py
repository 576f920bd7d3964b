"""Plans and their cache as objects: copies, pickles, threads, forks, and what they refuse."""

import contextlib
import copy
import os
import pickle
import signal
import subprocess
import sys
import threading

import numpy as np
import oracle
import pytest
import stof
from stof import masks, native_plan, planning
from stof.framework import Device
from stof.latest import Latest

SHAPE = dict(batch=1, num_heads=2, seq_q=40, head_dim=8, dtype="float32")


@pytest.fixture
def qkv():
    return oracle.arrays(1, 1, 2, 40, 40, 8)


def test_says_what_it_is():
    plan = stof.plan(masks.causal() & masks.window(3, 0), **SHAPE, softcap=2.0, return_lse=True)
    assert plan.mask == masks.causal() & masks.window(3, 0)
    assert (plan.device, plan.dtype, plan.problem.seq_kv) == ("cpu", "float32", 40)
    for part in ("stof.Plan", "float32", "window(3, 0)", "on cpu", "[1, 2, 40, 8]"):
        assert part in repr(plan)
    assert plan.facts()


def test_arrays_of_others_are_taken_and_handed_back_on_the_stream_that_runs(qkv, monkeypatch):
    """What the libraries are told to wait for is torch's current stream."""
    events = []

    class Other:
        def __init__(self, array):
            self.array = array

        @staticmethod
        def from_dlpack(array):
            events.append("handed back")
            return Other(array)

        def __array_namespace__(self):
            return Other

    @contextlib.contextmanager
    def scope(device, stream):
        events.append(f"stream {stream} of {device}")
        yield
        events.append("left")

    def taken(array, name):
        events.append(name)
        return None, array.array

    def run(q, k, v, stream, **others):
        events.append(f"run, stream={stream}")
        return q

    plan = stof.plan("causal", **SHAPE)
    monkeypatch.setattr(plan, "_device", Device("cuda", 1))
    monkeypatch.setattr(plan, "run", run)
    monkeypatch.setattr(planning, "stream_scope", scope)
    monkeypatch.setattr(planning, "import_torch", lambda *_: None)
    monkeypatch.setattr(planning, "adopt", taken)
    operands = dict(zip("qkv", map(Other, qkv)), out=None, lse=None)
    how = dict(score_tables=[Other(0)], stream=7, num_threads=0)
    assert plan._run_adopted(operands, how).array is qkv[0]
    steps = "stream 7 of cuda:1, q, k, v, score_tables[0], run, stream=None, handed back, left"
    assert ", ".join(events) == steps


def test_copies_and_pickles(qkv):
    plan = stof.plan(
        masks.dense(np.tri(40, dtype=bool)), **SHAPE, scale=0.5, sink=True, return_lse=True
    )
    assert copy.copy(plan) is plan and copy.deepcopy(plan) is plan
    again = pickle.loads(pickle.dumps(plan))
    assert again.mask == plan.mask and again.problem == plan.problem
    sink = np.ones(2, np.float32)
    for got, expected in zip(again.run(*qkv, sink=sink), plan.run(*qkv, sink=sink)):
        np.testing.assert_array_equal(got, expected)
    packed = stof.varlen_plan(
        "causal", [0, 15, 40], num_heads=2, head_dim=8, dtype="float32", alibi=True
    )
    rows = np.ones((40, 2, 8), np.float32)
    np.testing.assert_array_equal(
        pickle.loads(pickle.dumps(packed)).run(rows, rows, rows, alibi=sink),
        packed.run(rows, rows, rows, alibi=sink),
    )


def test_the_cache_knows_masks_by_content_and_everything_else(qkv):
    stof.cache_clear()
    q, k, v = qkv
    sink = np.zeros(2, np.float32)
    calls = [
        lambda: stof.attention(q, k, v, masks.causal()),
        lambda: stof.attention(q, k, v, "causal"),
        lambda: stof.attention(q, k, v),
        lambda: stof.attention(q, k, v, masks.causal(), scale=0.5),
        lambda: stof.attention(q, k, v, masks.causal(), softcap=0.5),
        lambda: stof.attention(q, k, v, masks.causal(), alignment="bottom_right"),
        lambda: stof.attention(q, k, v, masks.causal(), sink=sink),
        lambda: stof.attention(q, k, v, masks.causal(), alibi=sink),
        lambda: stof.attention(q, k, v, masks.causal(), return_lse=True),
        lambda: stof.attention(q, k, v, masks.causal(), bias=np.zeros((40, 40), np.float32)),
        lambda: stof.attention(q[:, :, :9], k, v, masks.causal()),
        lambda: stof.attention(q, k, v[..., :4], masks.causal()),
        lambda: stof.attention(*(x.astype(np.float16) for x in qkv), masks.causal()),
    ]
    for number, call in enumerate(calls):
        call()
        assert stof.cache_info().misses == number + 1
        call()
        assert stof.cache_info()[:2] == (number + 1, number + 1)
    assert stof.cache_info().currsize == len(calls)
    stof.attention(q, k, v, np.ones((40, 40), bool))  # may change, so it is planned every time
    assert stof.cache_info().currsize == len(calls)
    stof.cache_clear()
    assert stof.cache_info()[:2] == (0, 0) and stof.cache_info().currsize == 0


def test_numbers_that_change_in_place_are_read_in_every_call(qkv):
    rows = [x[0].swapaxes(0, 1) for x in qkv]
    for name, values in (("scale", (0.1, 1.0)), ("softcap", (0.5, 3.0))):
        number = np.array(values[0])  # hashed by identity, were it a key
        for value in values:
            number[...] = value
            for _ in range(2):
                np.testing.assert_array_equal(
                    stof.attention(*qkv, "causal", **{name: number}),
                    stof.attention(*qkv, "causal", **{name: value}),
                )
                np.testing.assert_array_equal(
                    stof.varlen_attention(*rows, [0, 40], mask="causal", **{name: number}),
                    stof.varlen_attention(*rows, [0, 40], mask="causal", **{name: value}),
                )
        with pytest.raises(stof.InvalidArgument, match=f"{name}: expected a number, got"):
            stof.attention(*qkv, "causal", **{name: np.ones(2)})


def test_position_bias_beside_a_plan_is_the_plans(qkv):
    table = np.random.default_rng(2).standard_normal((8, 2)).astype(np.float32)
    planned = stof.PositionBias(8, max_distance=128, bidirectional=True)
    plan = stof.plan(None, **SHAPE, position_bias=planned)
    packed = stof.varlen_plan(
        None, [0, 40], num_heads=2, head_dim=8, dtype="float32", position_bias=planned
    )
    rows = [x[0].swapaxes(0, 1) for x in qkv]
    for changed in (dict(max_distance=16), dict(bidirectional=False), dict(table=table[:4])):
        other = stof.PositionBias(**{**dict(table=table), **changed})
        with pytest.raises(stof.InvalidArgument, match="position_bias: expected the plan's"):
            stof.attention(*qkv, plan=plan, position_bias=other)
        with pytest.raises(stof.InvalidArgument, match="position_bias: expected the plan's"):
            stof.varlen_attention(*rows, [0, 40], plan=packed, position_bias=other)
    same = stof.PositionBias(table=table)
    np.testing.assert_array_equal(
        stof.attention(*qkv, plan=plan, position_bias=same),
        stof.attention(*qkv, position_bias=same),
    )
    stof.varlen_attention(*rows, [0, 40], plan=packed, position_bias=same)
    bare = stof.plan(None, **SHAPE)
    with pytest.raises(stof.InvalidArgument, match="position_bias: expected none because"):
        stof.attention(*qkv, plan=bare, position_bias=same)


def test_the_cache_is_bounded():
    stof.cache_clear()
    one = np.ones((1, 1, 1, 1), np.float32)
    size = stof.cache_info().maxsize
    for i in range(size + 10):
        stof.attention(one, one, one, masks.causal(i))
    assert stof.cache_info().currsize == size
    before = stof.cache_info().misses
    stof.attention(one, one, one, masks.causal(size + 9))
    assert stof.cache_info().misses == before
    stof.cache_clear()


def test_threads_share_a_plan(qkv):
    plan = stof.plan("causal", **SHAPE)
    expected = plan.run(*qkv)
    inputs = [tuple(x + np.float32(i) * (x is qkv[2]) for x in qkv) for i in range(4)]
    wrong = []

    def work(i):
        for _ in range(50):
            if not np.allclose(plan.run(*inputs[i]), expected + i, atol=1e-5):
                wrong.append(i)
            if not np.allclose(stof.attention(*inputs[i], "causal"), expected + i, atol=1e-5):
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


FORK = """
import os, signal, sys
import numpy as np, stof
q = np.random.default_rng(0).standard_normal((1, 4, 300, 16)).astype(np.float32)
plan = stof.plan("causal", batch=1, num_heads=4, seq_q=300, head_dim=16, dtype="float32")
expected = plan.run(q, q, q)  # OpenMP's threads exist from here on
child = os.fork()
if child == 0:
    signal.alarm(20)  # instead of hanging for ever
    same = np.array_equal(plan.run(q, q, q), expected)
    same = same and np.array_equal(stof.attention(q, q, q, "causal"), expected)
    os._exit(0 if same else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_works_in_a_child_after_fork():
    environment = {**os.environ, "OMP_NUM_THREADS": "4"}
    done = subprocess.run([sys.executable, "-c", FORK], env=environment, timeout=60)
    assert done.returncode == 0


FORK_BESIDE_THREADS = """
import os, signal, sys, threading
import numpy as np
import stof
from stof import masks

q = np.ones((1, 4, 100, 16), np.float32)
ended = threading.Event()

def work(seed):
    rng = np.random.default_rng(seed)
    while not ended.is_set():
        stof.attention(q, q, q, masks.window(int(rng.integers(300)), 0))

sys.setswitchinterval(1e-5)
threads = [threading.Thread(target=work, args=(seed,)) for seed in range(3)]
for thread in threads:
    thread.start()
hung = 0
for _ in range(30):
    child = os.fork()
    if child == 0:
        signal.alarm(10)  # instead of hanging for ever
        stof.attention(q, q, q, masks.window(7, 9))
        os._exit(0)
    hung += os.waitpid(child, 0)[1] != 0
ended.set()
sys.exit(hung)
"""


def test_works_in_a_child_forked_while_threads_plan():
    """Locks that other threads hold at the fork would stay closed in the child."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", FORK_BESIDE_THREADS], env=environment, timeout=120)
    assert done.returncode == 0


def test_explains_without_a_gpu():
    explained = stof.explain("causal", **{**SHAPE, "dtype": "bfloat16", "head_dim": 64})
    assert explained.candidates and explained.candidates[0].predicted_us > 0
    assert "us" in str(explained) and "causal" in str(explained)
    plan = stof.plan("causal", **{**SHAPE, "dtype": "float16"})
    assert stof.explain(plan).mask == "causal"
    packed = stof.varlen_plan("causal", [0, 40], num_heads=2, head_dim=64, dtype="float16")
    assert stof.explain(packed).candidates
    with pytest.raises(stof.Unsupported, match="bfloat16 and float16, got float32"):
        stof.explain("causal", **SHAPE)
    with pytest.raises(stof.InvalidArgument, match="expected a plan alone, got batch"):
        stof.explain(plan, batch=1)
    assert "problem" in stof.gpu_info()


@pytest.mark.parametrize(
    "options, message",
    [
        (dict(dtype="float64"), "dtype: expected float32, float16 or bfloat16, got float64"),
        (dict(dtype="float128e"), 'dtype: expected "float32"'),
        (dict(batch=0), "batch: expected at least 1, got 0"),
        (dict(num_heads=1.5), "num_heads: expected a whole number, got 1.5"),
        (dict(num_heads_kv=3), "num_heads_kv: expected a divisor of num_heads = 2, got 3"),
        (dict(seq_q=-1), "seq_q: expected at least 0, got -1"),
        (dict(scale=-0.5), "scale: expected a number of at least 0, .* got -0.5"),
        (dict(scale=float("nan")), "scale: expected a finite number, got nan"),
        (dict(softcap=-1), "softcap: expected at least 0"),
        (
            dict(alignment="right"),
            'alignment: expected "top_left" or "bottom_right", got \'right\'',
        ),
        (dict(device="tpu"), 'device: expected "cpu", "cuda"'),
        (dict(kernel="x"), "kernel: expected None because the plan is for the CPU, got 'x'"),
        (dict(bias=np.zeros(3)), r"bias: expected True or False.*Plan.run\(bias="),
        (dict(position_bias=np.zeros((32, 2))), "position_bias: expected a stof.PositionBias"),
        (dict(position_bias=stof.PositionBias()), "position_bias.num_buckets: expected at least 2"),
        (dict(bias=True, position_bias=stof.PositionBias(32)), "bias"),
    ],
)
def test_plans_are_refused(options, message):
    with pytest.raises(stof.InvalidArgument, match=message):
        stof.plan("causal", **{**SHAPE, **options})


def test_a_gpu_that_is_not_there():
    if not stof.gpu_info()["problem"]:
        pytest.skip("this machine has a GPU")
    with pytest.raises(stof.NotFound, match="NVIDIA"):
        stof.plan("causal", **{**SHAPE, "dtype": "float16"}, device="cuda")


def test_masks_in_turn_are_found_without_the_cache(qkv, monkeypatch):
    stof.cache_clear()
    used = [masks.causal(), masks.window(2, 0), "causal"]
    expected = [stof.attention(*qkv, mask) for mask in used]
    monkeypatch.setattr(stof.cache.plans, "get", None)
    for mask, one in zip(used * 2, expected * 2):
        np.testing.assert_array_equal(stof.attention(*qkv, mask), one)
    monkeypatch.undo()
    hits, misses = stof.cache_info()[:2]
    assert (hits, misses) == (6, 3)
    stof.attention(*qkv, used[0], softcap=2.0)  # other options and shapes are other plans
    stof.attention(*(x[:, :, :9] for x in qkv), used[0])
    stof.attention(*(x.astype(np.float16) for x in qkv), used[0])
    assert stof.cache_info()[:2] == (hits, misses + 3)
    with pytest.raises(stof.InvalidArgument, match="k: expected"):
        stof.attention(qkv[0], qkv[1][:, :1], qkv[2], used[1])
    stof.cache_clear()
    np.testing.assert_array_equal(stof.attention(*qkv, used[1]), expected[1])
    assert stof.cache_info().misses == 1


def test_many_masks_and_lengths_in_turn_are_found_without_the_cache(qkv, monkeypatch):
    stof.cache_clear()
    used = [masks.window(left, 0) for left in range(16)]
    lengths = [qkv, tuple(x[:, :, :9] for x in qkv), (qkv[0], qkv[1][:, :, :9], qkv[2][:, :, :9])]
    calls = [(operands, mask) for mask in used for operands in lengths]
    expected = [stof.attention(*operands, mask) for operands, mask in calls]
    monkeypatch.setattr(stof.cache.plans, "get", None)
    for (operands, mask), one in zip(calls, expected):
        np.testing.assert_array_equal(stof.attention(*operands, mask), one)


@pytest.fixture
def ctrl_c_is_heard():
    """A shell that starts pytest in the background has it ignore SIGINT."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


#: Pair by pair, for minutes.
ENDLESS = 'predicate("(q * q + 7 * k * k) % 13 < 3")'


@pytest.mark.parametrize(
    "call",
    [
        lambda: stof.plan(ENDLESS, **{**SHAPE, "seq_q": 300_000}),
        lambda: stof.varlen_plan(ENDLESS, [0, 300_000], num_heads=2, head_dim=8, dtype="float32"),
        lambda: masks.parse(ENDLESS).stats(300_000),
    ],
)
def test_ctrl_c_ends_long_planning(call, ctrl_c_is_heard):
    main = threading.get_ident()
    timer = threading.Timer(0.3, signal.pthread_kill, (main, signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        call()
    timer.join()
    for thread in threading.enumerate():
        if thread.name == "stof-planning":
            thread.join(60)  # it sees that it shall end after a strip of queries
            assert not thread.is_alive()


def test_errors_of_long_planning_are_raised():
    sizes = {**SHAPE, "seq_q": 20_000}
    with pytest.raises(stof.InvalidArgument, match="key_lengths"):
        stof.plan("key_lengths([30000])", **sizes)
    assert stof.plan("causal", **sizes).problem.seq_q == 20_000


def test_large_plans_are_made_while_the_interpreter_ends():
    code = f"""
import atexit, stof
atexit.register(lambda: print(stof.plan("causal", **{ {**SHAPE, "seq_q": 20_000} })))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0 and "stof.Plan" in done.stdout, done.stderr


def test_what_was_used_last_is_kept():
    latest = Latest(2)
    assert latest.get("a", lambda: 1) == 1 and latest.get("a", lambda: 9) == 1
    latest.get("b", lambda: 2)
    assert latest.find("a") == 1 and latest.keep("c", 3) == 3  # "b" goes
    assert latest.find("b") is None and latest.all() == [1, 3] and len(latest) == 2
    assert latest.keep("a", 9) == 1 and latest.all() == [3, 1]
    latest.clear()
    assert latest.all() == []


def test_the_streams_used_last_keep_their_instances(monkeypatch):
    problem = stof.plan("causal", **SHAPE).problem
    made = []
    monkeypatch.setattr(native_plan, "build", lambda *given, **how: made.append(0) or object())
    kept = native_plan._MAX_STREAMS
    instances = native_plan.Instances(problem, masks.causal(), Device("cuda"), None)
    streams = [instances.on(stream, 16, False) for stream in range(kept)]
    assert instances.on(0, 16, False) is streams[0] and len(made) == kept
    instances.on(kept, 16, False)  # takes the place of stream 1
    assert instances.on(0, 16, False) is streams[0] and len(made) == kept + 1
    assert instances.on(1, 16, False) is not streams[1] and len(made) == kept + 2
    assert len(instances._by_stream) == kept
