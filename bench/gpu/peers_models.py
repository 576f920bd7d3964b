"""The models of bench/gpu/stacks.cc in torch, as torch.compile takes them best, and the peers' attentions."""

import dataclasses
import math

import torch
import torch.nn.functional as F
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

BUCKETS, MAX_DISTANCE = 32, 128  # of T5's position biases


@dataclasses.dataclass
class Sizes:
    """Of a model of bench/gpu/stacks.cc that its weights do not tell."""

    heads: int
    kv_heads: int
    head_dim: int
    layers: int
    epsilon: float
    mask: str
    cells: tuple
    post_norm: bool = False
    llama: bool = False
    gelu: str = "none"
    t5: bool = False  # an encoder and a decoder


TEXTS = ((1, 128, ()), (8, 512, ()), (16, 2048, ()))
MODELS = {
    "bert-base": Sizes(12, 12, 64, 12, 1e-12, "bigbird", TEXTS + ((1, 4096, ()),), post_norm=True),
    "bert-large": Sizes(16, 16, 64, 24, 1e-12, "bigbird", TEXTS, post_norm=True),
    "gpt2": Sizes(12, 12, 64, 12, 1e-5, "causal_bigbird", TEXTS, gelu="tanh"),
    "llama-1b": Sizes(32, 8, 64, 16, 1e-5, "causal_bigbird", TEXTS, llama=True),
    "vit-base": Sizes(12, 12, 64, 12, 1e-12, "dense", ((1, 197, ()), (32, 197, ()), (128, 197, ()))),
    "t5-base": Sizes(12, 12, 64, 12, 1e-6, "bigbird", TEXTS, t5=True),
}


class Layer(torch.nn.Module):
    """A layer of bench/gpu/stacks.cc, q, k and v in one product, attention given: torch.compile's best case."""

    def __init__(self, sizes, weights, index, part=""):
        super().__init__()
        self.sizes = sizes
        base = f"{part}layer.{index}."
        for name, weight in weights.items():
            if name.startswith(base):
                parameter = torch.nn.Parameter(weight, requires_grad=False)
                self.register_parameter(name.removeprefix(base).replace(".", "_"), parameter)

    def norm(self, name, x):
        gamma = getattr(self, f"{name}_gamma")
        if self.sizes.llama or self.sizes.t5:
            return F.rms_norm(x, x.shape[-1:], gamma, self.sizes.epsilon)
        return F.layer_norm(x, x.shape[-1:], gamma, getattr(self, f"{name}_beta"), self.sizes.epsilon)

    def dense(self, name, x):
        return F.linear(x, getattr(self, f"{name}_weight"), getattr(self, f"{name}_bias", None))

    def attend(self, x, attention, rotation):
        sizes = self.sizes
        batch, seq, _ = x.shape
        qkv = self.dense("query_key_value", x).view(batch, seq, -1, sizes.head_dim).transpose(1, 2)
        q, k, v = qkv.split((sizes.heads, sizes.kv_heads, sizes.kv_heads), dim=1)
        if rotation is not None:
            q, k = rotate(q, *rotation), rotate(k, *rotation)
        context = attention(q, k, v).transpose(1, 2).reshape(batch, seq, sizes.heads * sizes.head_dim)
        return self.dense("attention_output", context)

    def cross(self, x, encoded, attention):
        sizes = self.sizes
        batch, seq, _ = x.shape
        q = self.dense("cross_query", x).view(batch, seq, -1, sizes.head_dim).transpose(1, 2)
        kv = self.dense("cross_key_value", encoded).view(batch, encoded.shape[1], -1, sizes.head_dim).transpose(1, 2)
        context = attention(q, *kv.chunk(2, dim=1)).transpose(1, 2).reshape(batch, seq, sizes.heads * sizes.head_dim)
        return self.dense("cross_output", context)

    def inner(self, x):
        if self.sizes.llama:
            gate, up = self.dense("gate_up", x).chunk(2, dim=-1)
            return self.dense("output", F.silu(gate) * up)
        wide = self.dense("intermediate", x)
        if self.sizes.t5:
            return self.dense("output", F.relu(wide))
        return self.dense("output", F.gelu(wide, approximate=self.sizes.gelu))

    def forward(self, x, attention, rotation):
        if self.sizes.post_norm:
            x = self.norm("attention_norm", x + self.attend(x, attention, rotation))
            return self.norm("output_norm", x + self.inner(x))
        x = x + self.attend(self.norm("attention_norm", x), attention, rotation)
        return x + self.inner(self.norm("output_norm", x))


class Stack(torch.nn.Module):
    def __init__(self, sizes, weights):
        super().__init__()
        self.layers = torch.nn.ModuleList([Layer(sizes, weights, index) for index in range(sizes.layers)])

    def forward(self, x, attention, rotation):
        for layer in self.layers:
            x = layer(x, attention, rotation)
        return x


class Decoded(torch.nn.Module):
    """An encoder with a decoder; x [2, batch, seq, hidden] is what their first layers read, and attention theirs and
    that of the decoder to the encoder."""

    def __init__(self, sizes, weights):
        super().__init__()
        self.sizes = sizes
        self.encoder, self.decoder = (
            torch.nn.ModuleList([Layer(sizes, weights, index, part) for index in range(sizes.layers)])
            for part in ("encoder.", "decoder."))
        for part in ("encoder", "decoder"):
            self.register_buffer(f"{part}_gamma", weights[f"{part}.final_norm.gamma"])

    def final(self, part, x):
        return F.rms_norm(x, x.shape[-1:], getattr(self, f"{part}_gamma"), self.sizes.epsilon)

    def forward(self, x, attention, rotation):
        own, decoding, cross = attention
        encoded, x = x
        for layer in self.encoder:
            encoded = layer(encoded, own, rotation)
        encoded = self.final("encoder", encoded)
        for layer in self.decoder:
            x = x + layer.attend(layer.norm("attention_norm", x), decoding, rotation)
            x = x + layer.cross(layer.norm("cross_norm", x), encoded, cross)
            x = x + layer.inner(layer.norm("output_norm", x))
        return self.final("decoder", x)


def stack_of(sizes, weights):
    return (Decoded if sizes.t5 else Stack)(sizes, weights).eval()


def distance_biases(table, seq, bidirectional):
    """[heads, 2 seq - 1] of table [buckets, heads]: for keys seq - 1 before the query up to as many behind it. By the
    definition of T5 (Raffel et al. 2020, arXiv 1910.10683): half of the buckets one distance each, the others in
    logarithmic steps up to MAX_DISTANCE; half of all for either side where keys behind are seen."""
    ahead = torch.arange(1 - seq, seq, device=table.device)
    if bidirectional:
        buckets, first, distance = BUCKETS // 2, (ahead > 0) * (BUCKETS // 2), ahead.abs()
    else:
        buckets, first, distance = BUCKETS, 0, (-ahead).clamp(min=0)
    exact = buckets // 2
    steps = torch.log(distance.float().clamp(min=1) / exact) / math.log(MAX_DISTANCE / exact) * (buckets - exact)
    bucket = torch.where(distance < exact, distance, (exact + steps.long()).clamp(max=buckets - 1))
    return table[first + bucket].t().contiguous()


def masked_biases(biases, mask):
    """[1, heads, seq, seq] to add to scores."""
    seq = len(mask)
    places = torch.arange(seq, device=mask.device)
    return biases[:, places[None] - places[:, None] + seq - 1].masked_fill(~mask, float("-inf"))[None]


def rotate(x, cos, sin):
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


def rotation_of(weights, seq, dtype):
    """(cosines, sines) [seq, head_dim], as transformers makes them; none without RoPE."""
    frequencies = weights.get("rope.frequencies")
    if frequencies is None:
        return None
    angles = torch.arange(seq, device=frequencies.device, dtype=torch.float32)[:, None] * frequencies.float()
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos().to(dtype), angles.sin().to(dtype)


def mask_blocks(mask):
    """Whether it is whole 64x64 blocks cut by causal, and these blocks."""
    seq = len(mask)
    causal = bool((mask == mask.tril()).all())
    blocks = mask.reshape(seq // 64, 64, seq // 64, 64).any(3).any(1)
    whole = blocks.repeat_interleave(64, 0).repeat_interleave(64, 1)
    if not torch.equal(whole.tril() if causal else whole, mask):
        raise SystemExit(f"BigBird at {seq}: expected a mask of whole 64x64 blocks, or that cut by causal")
    return causal, blocks


def block_mask_of(mask):
    """FlexAttention's; its function looks a pair's block up."""
    causal, blocks = mask_blocks(mask)

    def visible(b, h, q, k):
        seen = blocks[q // 64, k // 64]
        return seen & (q >= k) if causal else seen

    return create_block_mask(visible, None, None, len(mask), len(mask), device=mask.device)


def flex_with_biases(mask, biases):
    block_mask = block_mask_of(mask)
    last = len(mask) - 1

    def biased(score, b, h, q, k):
        return score + biases[h, k - q + last]

    return lambda q, k, v: flex_attention(q, k, v, score_mod=biased, block_mask=block_mask, scale=1.0)


def sdpa_with_biases(mask, biases, dtype):
    added = masked_biases(biases, mask).to(dtype)
    return lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=added, scale=1.0)


def attentions_with_biases(mask, weights, dtype):
    """(peer's name, (the encoder's, the decoder's, cross-attention)) for the encoder's mask."""
    parts = [(mask, distance_biases(weights["encoder.position_bias"].float(), len(mask), bidirectional=True)),
             (mask.tril(), distance_biases(weights["decoder.position_bias"].float(), len(mask), bidirectional=False))]
    cross = lambda q, k, v: F.scaled_dot_product_attention(q, k, v, scale=1.0)  # noqa: E731
    yield "compile_flex", (*(flex_with_biases(*part) for part in parts), cross)
    yield "compile_sdpa_mask", (*(sdpa_with_biases(*part, dtype) for part in parts), cross)


def attentions(sizes, mask, weights, dtype):
    """(peer's name, attention) for the mask; none: every token sees every other."""
    if sizes.t5:
        yield from attentions_with_biases(mask, weights, dtype)
        return
    groups = sizes.heads // sizes.kv_heads

    def widened(k):
        # Neither of SDPA's backends for masks takes grouped heads.
        return k.repeat_interleave(groups, dim=1) if groups > 1 else k

    if mask is None:
        yield "compile_sdpa", lambda q, k, v: F.scaled_dot_product_attention(q, widened(k), widened(v))
        return
    block_mask = block_mask_of(mask)
    yield "compile_flex", lambda q, k, v: flex_attention(q, k, v, block_mask=block_mask, enable_gqa=groups > 1)
    yield "compile_sdpa_mask", lambda q, k, v: F.scaled_dot_product_attention(q, widened(k), widened(v), attn_mask=mask)
