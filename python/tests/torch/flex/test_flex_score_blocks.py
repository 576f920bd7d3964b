"""score_mods without an expression: attention by torch, with a warning that says why and where."""

import functools
import warnings

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.attention import flex_attention as torch_flex

from comparing import DEVICE, DTYPES, ON_GPU, assert_close, randn
from flexing import qkv, torch_flex_attention, torch_lists
from stof import InvalidArgument, Unsupported
from stof.compat.flex import TraceWarning, create_block_mask, evaluation, flex_attention
from zoo import Case, on_device, random

knots = random(4, seed=3)
table = random(3, 37, seed=4)
tokens = on_device([0, 7, 31])

pytestmark = pytest.mark.filterwarnings("ignore::stof.compat.flex.TraceWarning")


def lgamma(score, b, h, q, kv):
    return torch.lgamma(score.abs() + 1.5) - 0.25 * (h + b)


def radial(score, b, h, q, kv):
    """A vector on the way."""
    return score + torch.exp(-((score - knots) ** 2)).sum()


def erf_of_distance(score, b, h, q, kv):
    return score * torch.erf((q - kv) / 9.0) + table[h, kv]


def member_bonus(score, b, h, q, kv):
    return torch.where((kv == tokens).any(), score.expm1(), score.sinh())


def doubles(score, b, h, q, kv):
    return torch.atan2(score.double(), 1.0 + q - kv + 40)


def hides(score, b, h, q, kv):
    """-inf that depends on the score; rows of head 0 from 30 on see nothing."""
    hidden = (torch.erfinv(torch.tanh(score)) > 0.4) | ((q >= 30) & (h == 0))
    return torch.where(hidden, -float("inf"), score)


MODS = {
    mod.__name__: mod for mod in (lgamma, radial, erf_of_distance, member_bonus, doubles, hides)
}


def case_of(mod, q_len=33, kv_len=37):
    return Case(mod, 2, 3, q_len, kv_len)


def traced_mask(b, h, q, kv):
    return ((q >= kv) | (kv % 5 == h)) & (q != 11)


def evaluated_mask(b, h, q, kv):
    return ((q * 0.75 >= kv) | (kv == tokens).any()) & (q != 11)


def check(q, k, v, mod, mask_mod=None, block_mask=None, dtype=None, **options):
    expected, expected_lse = torch_flex_attention(q, k, v, mod, mask_mod, **options)
    out, lse = flex_attention(q, k, v, mod, block_mask, return_lse=True, **options)
    assert out.dtype == q.dtype and lse.dtype == torch.float32
    assert_close(out, expected, dtype)
    assert_close(lse, expected_lse, dtype)


@pytest.mark.parametrize("name", MODS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_scores(name, dtype):
    q, k, v = qkv(case_of(MODS[name]), dtype=dtype)
    check(q, k, v, MODS[name], dtype=dtype)


@pytest.mark.parametrize("name", MODS)
@pytest.mark.parametrize("mask_mod", [traced_mask, evaluated_mask])
def test_scores_under_a_mask(name, mask_mod):
    """Row 11 sees nothing."""
    case = case_of(MODS[name])
    q, k, v = qkv(case)
    ours = create_block_mask(mask_mod, None, q.shape[1], case.q_len, case.kv_len, DEVICE)
    check(q, k, v, case.mod, mask_mod, ours)
    lists = torch_lists(mask_mod, Case(mask_mod, 2, 3, case.q_len, case.kv_len), 16)
    check(q, k, v, case.mod, mask_mod, lists)


def test_block_lists_count():
    """Blocks that a BlockMask does not list are hidden, full ones visible, whatever mask_mod says."""
    counts, ids = (
        on_device([[[1, 0, 2]]]).int(),
        on_device([[[[0, 1, 2], [0, 1, 2], [2, 0, 1]]]]).int(),
    )
    full_counts, full_ids = (
        on_device([[[1, 1, 0]]]).int(),
        on_device([[[[1, 0, 2], [2, 0, 1], [0, 1, 2]]]]).int(),
    )

    def mask_mod(b, h, q, kv):
        return (q + kv) % 3 == 0

    block_mask = torch_flex.BlockMask.from_kv_blocks(
        counts, ids, full_counts, full_ids, BLOCK_SIZE=16, mask_mod=mask_mod
    )

    def listed(b, h, q, kv):
        partial = on_device([[1, 0, 0], [0, 0, 0], [1, 0, 1]])[q // 16, kv // 16] == 1
        full = on_device([[0, 1, 0], [0, 0, 1], [0, 0, 0]])[q // 16, kv // 16] == 1
        return (partial & mask_mod(b, h, q, kv)) | full

    q, k, v = qkv(Case(lgamma, 2, 3, 48, 48))
    check(q, k, v, lgamma, listed, block_mask)
    counts.fill_(0)  # in place
    nothing = lambda b, h, q, kv: (
        on_device([[0, 1, 0], [0, 0, 1], [0, 0, 0]])[q // 16, kv // 16] == 1
    )  # noqa: E731
    check(q, k, v, lgamma, nothing, block_mask)


@pytest.mark.parametrize("chunk", [1, 50, 1000, 3000, 1 << 22])
def test_blocks_of_all_sizes(chunk, monkeypatch):
    """Rows, heads and batch entries apart and together."""
    monkeypatch.setattr(evaluation, "_CHUNK_PAIRS", chunk)
    case = case_of(erf_of_distance, 9, 37)
    q, k, v = qkv(case, batch=3)
    ours = create_block_mask(traced_mask, None, None, 9, 37, DEVICE)
    check(q, k, v, case.mod, traced_mask, ours)


def test_memory_is_bounded(monkeypatch):
    from stof.compat.flex import score_blocks
    from stof.compat.flex.resolving import Shape

    for shape in (Shape(4, 8, 1, 5000), Shape(64, 32, 128, 128), Shape(1, 2, 9000, 9000)):
        pairs, done = 1 << 22, 0
        for part in score_blocks._entries(shape, 192):
            entries = len(part.batch) * len(part.heads)
            done += entries
            assert entries == 1 or entries * shape.kv_len * max(part.num_rows, 192) <= pairs
            assert part.num_rows * shape.kv_len <= pairs
        assert done == shape.batch * shape.heads


def test_grouped_heads_and_scale():
    q, k, v = qkv(Case(lgamma, 2, 4, 33, 37), heads_kv=2)
    check(q, k, v, lgamma, scale=0.7, enable_gqa=True)
    with pytest.raises(InvalidArgument, match="enable_gqa=True"):
        flex_attention(q, k, v, lgamma)


def test_other_widths_strides_and_one_batch_entry_of_keys():
    q = randn(2, 33, 3, 32, seed=1).transpose(1, 2)
    k = randn(1, 3, 32, 37, seed=2).transpose(2, 3)
    v = randn(1, 3, 37, 8, seed=3)
    ours = create_block_mask(traced_mask, None, None, 33, 37, DEVICE)
    check(q, k, v, lgamma, traced_mask, ours)


def test_no_keys_and_no_queries():
    q, k, v = qkv(Case(lgamma, 2, 3, 5, 0))
    out, lse = flex_attention(q, k, v, lgamma, return_lse=True)
    assert not out.any() and torch.isneginf(lse).all()
    q, k, v = qkv(Case(lgamma, 2, 3, 0, 5))
    assert flex_attention(q, k, v, lgamma).shape == q.shape


def test_the_warning_says_why_and_where():
    q, k, v = qkv(case_of(lgamma))
    with pytest.warns(TraceWarning) as caught:
        flex_attention(q, k, v, lgamma)
    (warning,) = caught
    message = str(warning.message)
    for part in ("score_mod 'lgamma'", "torch.lgamma() has no expression", "in lgamma", "33 x 37"):
        assert part in message
    assert warning.filename == __file__


def test_values_change_between_calls():
    changing, number = random(37, seed=6), 1.0

    def mod(score, b, h, q, kv):
        return torch.erf(score) * number + changing[kv]

    q, k, v = qkv(case_of(mod))
    for _ in range(3):
        check(q, k, v, mod)
        changing.mul_(-2)
        number += 1


def test_a_row_of_nan_stays_one():
    """As torch's: NaN where a score is, nothing where it is hidden."""

    def mod(score, b, h, q, kv):
        return torch.where((q == 3) & (kv == 2), float("nan"), torch.erf(score))

    q, k, v = qkv(case_of(mod))
    out = flex_attention(q, k, v, mod)
    assert out[:, :, 3].isnan().all() and not out[:, :, 4:].isnan().any()
    hiding = create_block_mask(lambda b, h, q, kv: kv != 2, None, None, 33, 37, DEVICE)
    assert not flex_attention(q, k, v, mod, hiding).isnan().any()


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("chunk", [50, 1 << 22])
def test_hidden_keys_count_for_nothing(bad, chunk, monkeypatch):
    """Whatever their values are, and whoever hides them; where they are seen they count."""
    monkeypatch.setattr(evaluation, "_CHUNK_PAIRS", chunk)

    def hiding(score, b, h, q, kv):
        hidden = (kv == 7) | ((kv == 4) & (q > 20))
        return torch.where(hidden, -float("inf"), torch.erf(score))

    q, k, v = qkv(case_of(lgamma))
    expected, expected_lse = torch_flex_attention(q, k, v, hiding, traced_mask)
    v[:, :, 7], v[:, 1, 4, 3] = bad, bad
    for mask_mod in (traced_mask, lambda b, h, q, kv: traced_mask(b, h, q, kv) & (kv != 7)):
        masked = create_block_mask(mask_mod, None, 3, 33, 37, DEVICE)
        out, lse = flex_attention(q, k, v, hiding, masked, return_lse=True)
        met = torch.zeros_like(out, dtype=torch.bool)
        rows = torch.arange(33, device=DEVICE)
        met[:, 1, (rows >= 4) & (rows <= 20) & (rows != 11), 3] = True
        assert torch.equal(out[met].isnan(), torch.full_like(out[met], bad).isnan())
        assert torch.equal(out[met].nan_to_num(), torch.full_like(out[met], bad).nan_to_num())
        assert_close(out.masked_fill(met, 0), expected.masked_fill(met, 0))
        assert_close(lse, expected_lse)
    k[:, :, 7] = bad
    assert_close(
        flex_attention(q, k, v, hiding, masked).masked_fill(met, 0), expected.masked_fill(met, 0)
    )


def test_infinite_values_of_both_signs_are_nan():
    q, k, v = qkv(case_of(lgamma))
    v[:, :, 3, 0], v[:, :, 5, 0] = float("inf"), -float("inf")
    out = flex_attention(q, k, v, lgamma)
    assert out[..., 0].isnan().all() and not out[..., 1:].isnan().any()


def added(score, b, h, q, kv):
    return score + h


@pytest.mark.parametrize(
    "change",
    [
        lambda q, k, v: (q[:0], k[:0], v[:0]),
        lambda q, k, v: (q[..., :0], k[..., :0], v),
        lambda q, k, v: (q, k, v[..., :0]),
        lambda q, k, v: (q, k, v[:1]),
        lambda q, k, v: (q, k, v[:, :1]),
        lambda q, k, v: (q, k, v[:, :, :5]),
        lambda q, k, v: (q, k.double(), v),
        lambda q, k, v: (q, k, v.to(torch.int32)),
        lambda q, k, v: (q, torch._neg_view(k), v),
        lambda q, k, v: (q[..., :1].expand(-1, -1, -1, 600), k[..., :1].expand(-1, -1, -1, 600), v),
        *({"scale": number} for number in (-0.3, float("nan"), float("inf"), 1e39)),
    ],
)
def test_refuses_what_the_kernels_refuse(change):
    """In the same words, save of widths, of which each GPU has a limit of its own."""
    operands, options = qkv(case_of(lgamma)), {}
    if isinstance(change, dict):
        options = change
    else:
        operands = change(*operands)
    messages = []
    for mod in (added, lgamma):
        with pytest.raises(InvalidArgument) as caught:
            flex_attention(*operands, mod, **options)
        messages.append(str(caught.value))
    assert messages[0] == messages[1] or (ON_GPU and operands[0].shape[-1] > 512)


def _nested(x, layout):
    return torch.nested.nested_tensor(list(x.transpose(1, 2)), layout=layout).transpose(1, 2)


KINDS = {
    "nested": lambda x: _nested(x, torch.strided),
    "jagged": lambda x: _nested(x, torch.jagged),
    "sparse": torch.Tensor.to_sparse,
    "fake": FakeTensorMode().from_tensor,
}
if not ON_GPU:
    KINDS["mkldnn"] = torch.Tensor.to_mkldnn


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mod", [None, added, lgamma])
def test_tensors_without_plain_memory_are_refused_by_name(kind, mod):
    operands = qkv(case_of(lgamma))
    for which in ((0, 1, 2), (0,), (1,), (2,)):
        if kind == "fake" and mod is not lgamma and len(which) == 3:
            continue  # the result is a fake tensor too
        given = [KINDS[kind](x) if i in which else x for i, x in enumerate(operands)]
        names = [("q(uery)?", "k(ey)?", "v(alue)?")[i] for i in which]
        if kind == "fake" and which == (0,):
            names.append("k")
        with pytest.raises((InvalidArgument, Unsupported), match=f"^({'|'.join(names)}): expected"):
            flex_attention(*given, mod)


def test_under_autocast():
    """Inner products stay float32's."""
    q, k, v = qkv(case_of(lgamma))
    q, k, v = (x.to(DTYPES[-1]) for x in (q, k, v))
    expected, _ = torch_flex_attention(q, k, v, lgamma)
    with torch.autocast(DEVICE, dtype=DTYPES[-1]):
        assert_close(flex_attention(q, k, v, lgamma), expected, DTYPES[-1])


def reads_item(score, b, h, q, kv):
    return torch.erf(score) * float(score)


def branches(score, b, h, q, kv):
    return score if score > 0 else -score


def branches_on_head(score, b, h, q, kv):
    return torch.erf(score) if h == 0 else score


def vector(score, b, h, q, kv):
    return torch.erf(score) + knots


def not_a_number(score, b, h, q, kv):
    return torch.erf(score) * 1j


def random_numbers(score, b, h, q, kv):
    return score + torch.rand(())


def nothing(score, b, h, q, kv):
    return None


def pair(score, b, h, q, kv):
    return score, score


def word(score, b, h, q, kv):
    return "1.0"


@pytest.mark.parametrize(
    "mod, messages",
    [
        (reads_item, ["torch.erf() has no expression", "vmap"]),
        (branches, ["truth of a symbolic value", "vmap"]),
        (branches_on_head, ["truth of a symbolic value", "vmap"]),
        (vector, ["shape (4,) for one pair"]),
        (not_a_number, ["expected a real number"]),
        (random_numbers, ["torch.rand() has no expression: it is random", "draws no random numbers"]),
        (nothing, ["the result is a NoneType; expected one real number"]),
        (pair, ["(the result is a tuple; expected one real number; at", "vmap (TypeError: the result"]),
        (word, ["the result is a str; expected one real number"]),
    ],
)
def test_what_fails_altogether(mod, messages):
    q, k, v = qkv(case_of(mod))
    with pytest.raises(Unsupported) as caught:
        flex_attention(q, k, v, mod)
    message = str(caught.value)
    for part in (f"score_mod {mod.__name__!r}", f"in {mod.__name__}", *messages):
        assert part in message


@pytest.mark.parametrize(
    "draw",
    [
        lambda: torch.empty((), device=DEVICE).uniform_(),
        lambda: torch.zeros(2, device=DEVICE).normal_()[0],
        lambda: torch.rand((), generator=torch.Generator()),
        lambda: torch.randint_like(torch.zeros(2, device=DEVICE), 5)[1],
        lambda: torch.randn_like(torch.empty((), device=DEVICE)),
        lambda: torch.nn.functional.dropout(torch.ones((), device=DEVICE), 0.5),
        lambda: torch.nn.functional.dropout(torch.ones(2, device=DEVICE), 0.5)[0],
        lambda: torch.distributions.Normal(0.0, 1.0).sample(),
    ],
    ids=["in_place", "vector", "generator", "like", "randn_like", "dropout", "elements", "class"],
)
def test_random_numbers_are_never_one_for_all_pairs(draw):
    """Whatever draws them, and from whichever generator."""
    q, k, v = qkv(case_of(lgamma))
    with pytest.raises(Unsupported, match="random.*evaluated with torch.vmap.*random"):
        flex_attention(q, k, v, lambda score, b, h, q, kv: score + draw())
    with pytest.raises(InvalidArgument, match="random.*evaluated with torch.vmap.*random"):
        create_block_mask(lambda b, h, q, kv: (q >= kv) & (draw() > 0.5), 1, 1, 33, 37, DEVICE)


def test_a_mask_that_vmap_cannot_run():
    def mask_mod(b, h, q, kv):  # traced, it is no tensor
        return q >= kv if not isinstance(q, torch.Tensor) else bool(q >= kv)

    q, k, v = qkv(case_of(lgamma))
    ours = create_block_mask(mask_mod, None, None, 33, 37, DEVICE)
    with pytest.raises(
        InvalidArgument, match="mask_mod 'mask_mod' cannot be evaluated with torch.vmap"
    ):
        flex_attention(q, k, v, lgamma, ours)


def test_gradients_are_refused():
    q, k, v = qkv(case_of(lgamma))
    with pytest.raises(Unsupported, match="query: expected a tensor without gradients"):
        flex_attention(q.requires_grad_(), k, v, lgamma)
    q = q.detach()
    bias = torch.nn.Parameter(random(37))
    mod = lambda score, b, h, q, kv: torch.erf(score) + bias[kv]  # noqa: E731
    with pytest.raises(Unsupported, match="score_mod: expected captured tensors without gradients"):
        flex_attention(q, k, v, mod)
    with torch.no_grad():
        check(q, k, v, mod)


def test_wrong_operands_and_short_tables():
    q, k, v = qkv(case_of(lgamma))
    with pytest.raises(InvalidArgument, match="value: expected dtype"):
        flex_attention(q, k, v.to(torch.float64), lgamma)
    with pytest.raises(InvalidArgument, match="key: expected shape"):
        flex_attention(q, k[..., :8], v, lgamma)
    with pytest.raises(InvalidArgument, match="33 queries and 37 keys"):
        flex_attention(q, k, v, lgamma, create_block_mask(traced_mask, None, None, 33, 36, DEVICE))
    short = random(36) > 0
    ours = create_block_mask(lambda b, h, q, kv: short[kv], None, None, 33, 37, DEVICE)
    with pytest.raises(InvalidArgument, match="at least 37 elements in dimension 0"):
        flex_attention(q, k, v, lgamma, ours)


def test_kinds_of_tensors():
    q, k, v = qkv(case_of(lgamma))
    expected, _ = torch_flex_attention(q, k, v, lgamma)
    with torch.inference_mode():
        assert_close(flex_attention(q.clone(), k.clone(), v, lgamma), expected)
    with torch.no_grad():
        out = flex_attention(torch.nn.Parameter(q), k, v, lgamma)
    assert type(out) is torch.Tensor and not out.requires_grad
    assert_close(out, expected)
    meta = torch.empty_like(q, device="meta")
    with pytest.raises(InvalidArgument, match="query: expected .* CUDA device, got one on meta"):
        flex_attention(meta, meta, meta, lgamma)


def test_inside_torch_compile():
    """The graph breaks at the call."""
    q, k, v = qkv(case_of(lgamma))
    expected, _ = torch_flex_attention(q, k, v, lgamma)
    compiled = torch.compile(
        lambda q, k, v: flex_attention(q + 0, k, v, lgamma) * 2, backend="eager"
    )
    with torch.no_grad():
        assert_close(compiled(q, k, v), 2 * expected)


def test_partial_functions_and_objects():
    class Scaled:
        def __init__(self, factor):
            self.factor = factor

        def __call__(self, score, b, h, q, kv):
            return torch.erf(score) * self.factor

    q, k, v = qkv(case_of(lgamma))
    check(q, k, v, Scaled(1.5))
    check(q, k, v, functools.partial(lambda f, s, b, h, q, kv: torch.erf(s) * f, 0.5))


if ON_GPU:

    def test_cuda_graph_reads_new_values():
        bias = random(37)
        mod = lambda s, b, h, q, kv: torch.erf(s) + bias[kv]  # noqa: E731
        q, k, v = qkv(case_of(mod))
        for block_mask, mask_mod in (
            (None, None),
            (create_block_mask(traced_mask, None, None, 33, 37, DEVICE), traced_mask),
            (torch_lists(traced_mask, Case(traced_mask, 2, 3, 33, 37), 16), traced_mask),
        ):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                flex_attention(q, k, v, mod, block_mask)
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph):
                    out = flex_attention(q, k, v, mod, block_mask)
            bias.neg_()
            q.neg_()
            graph.replay()
            assert_close(out, torch_flex_attention(q, k, v, mod, mask_mod)[0])
