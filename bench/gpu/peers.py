#!/usr/bin/env python3
"""Times what a PyTorch user has for masked attention, on the masks that bench_gpu_attention times.

  bench_gpu_attention --masks DIR     writes every mask of the grid as bits
  bench/gpu/peers.py --masks DIR --out FILE [--budget SECONDS]

Every peer's mask is compared with those bits, pair by pair, before it is timed. Peers: FlexAttention compiled, with
128- and 64-wide blocks; SDPA by cuDNN and flash where the mask is dense or causal; SDPA by cuDNN and the
memory-efficient kernel with the mask as a dense bias up to 4096 tokens. Times are medians of 7 replays of a CUDA graph
of 20 calls, as in bench_gpu_attention. Writes one JSON line a measurement; what the budget leaves no time for is named.
"""

import argparse
import datetime
import json
import pathlib
import sys
import time

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

SHAPES = [(1, 32, 8, 16384, 128), (1, 32, 32, 4096, 128), (16, 12, 12, 2048, 64), (8, 12, 12, 512, 64),
          (1, 12, 12, 1024, 64), (1, 12, 12, 128, 64), (16, 12, 12, 4096, 64)]
MASKS = ["dense", "causal", "sliding", "causal_window", "longformer", "bigbird", "document", "random_block",
         "random_elem", "dilated", "strided"]
LONGEST_DENSE_BIAS = 4096
DEVICE = "cuda"


def read_bits(folder, seq, name):
    """The mask as bool [seq, seq] on the GPU."""
    words = torch.frombuffer(bytearray((folder / f"{seq}_{name}.bits").read_bytes()), dtype=torch.uint8).to(DEVICE)
    shifts = torch.arange(8, device=DEVICE, dtype=torch.uint8)
    return ((words[:, None] >> shifts) & 1).bool().reshape(seq, seq)


def mask_function(name, seq, bits):
    """The mask as FlexAttention wants it; what is random is looked up."""
    width = 128 if seq <= 1024 else 256
    blocks = bits[::64, ::64].contiguous()
    starts = bits.int().argmax(1)  # of a row's document
    return {
        "dense": lambda b, h, q, k: q >= 0,
        "causal": lambda b, h, q, k: q >= k,
        "sliding": lambda b, h, q, k: (q - k).abs() <= width,
        "causal_window": lambda b, h, q, k: (q >= k) & (q - k <= 2 * width),
        "longformer": lambda b, h, q, k: ((q - k).abs() <= width) | (q < 64) | (k < 64),
        "bigbird": lambda b, h, q, k: blocks[q // 64, k // 64],
        "document": lambda b, h, q, k: (q >= k) & (k >= starts[q]),
        "random_block": lambda b, h, q, k: blocks[q // 64, k // 64],
        "random_elem": lambda b, h, q, k: bits[q, k],
        "dilated": lambda b, h, q, k: ((q - k).abs() <= 2 * width) & ((q - k) % 2 == 0),
        "strided": lambda b, h, q, k: (q >= k) & ((q - k <= 128) | ((q - k) % 128 == 0)),
    }[name]


def graph_us(call, calls=20, repeats=7):
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(calls):
            call()
    graph.replay()
    times = []
    for _ in range(repeats):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) * 1e3 / calls)
    return sorted(times)[repeats // 2]


def peers_of(shape, name, bits, q, k, v, wide_blocks):
    """(peer's name, call) of one cell; built as they are asked for."""
    batch, heads, heads_kv, seq, _ = shape
    grouped = heads != heads_kv
    function = mask_function(name, seq, bits)
    block = 128 if wide_blocks else 64
    block_mask = create_block_mask(function, None, None, seq, seq, device=DEVICE, BLOCK_SIZE=block, _compile=seq > 4096)
    options = None if wide_blocks else {"BLOCK_M": 64, "BLOCK_N": 64}
    flex = torch.compile(flex_attention, dynamic=False)
    yield f"flex{block}", lambda: flex(q, k, v, block_mask=block_mask, enable_gqa=grouped, kernel_options=options)
    if not wide_blocks:
        return

    def sdpa(backend, **arguments):
        def call():
            with sdpa_kernel(backend):
                return F.scaled_dot_product_attention(q, k, v, enable_gqa=grouped, **arguments)
        return call

    if name in ("dense", "causal"):
        yield "sdpa_flash", sdpa(SDPBackend.FLASH_ATTENTION, is_causal=name == "causal")
        yield "sdpa_cudnn", sdpa(SDPBackend.CUDNN_ATTENTION, is_causal=name == "causal")
    if seq <= LONGEST_DENSE_BIAS and not grouped:
        bias = torch.zeros(seq, seq, device=DEVICE, dtype=q.dtype).masked_fill_(~bits, float("-inf"))
        bias = bias.expand(batch, heads, seq, seq)
        yield "sdpa_cudnn_mask", sdpa(SDPBackend.CUDNN_ATTENTION, attn_mask=bias)
        yield "sdpa_efficient_mask", sdpa(SDPBackend.EFFICIENT_ATTENTION, attn_mask=bias)


def same_pairs(name, seq, bits):
    """Whether the function shows what the bits show; a slab of rows at a time."""
    function = mask_function(name, seq, bits)
    columns = torch.arange(seq, device=DEVICE)[None, :]
    for first in range(0, seq, 2048):
        rows = torch.arange(first, min(first + 2048, seq), device=DEVICE)[:, None]
        if not torch.equal(function(0, 0, rows, columns).expand(len(rows), seq), bits[first:first + len(rows)]):
            return False
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--masks", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--budget", type=float, default=540, help="seconds")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    torch._dynamo.config.recompile_limit = 512
    torch._dynamo.config.accumulated_recompile_limit = 4096
    end = time.monotonic() + arguments.budget
    facts = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__,
             "date": datetime.date.today().isoformat()}
    wrong = 0
    with arguments.out.open("w") as out:
        for wide_blocks in (True, False):
            for shape in SHAPES:
                batch, heads, heads_kv, seq, dim = shape
                q = torch.randn(batch, heads, seq, dim, device=DEVICE, dtype=torch.bfloat16)
                k = torch.randn(batch, heads_kv, seq, dim, device=DEVICE, dtype=torch.bfloat16)
                v = torch.randn_like(k)
                for name in MASKS:
                    if time.monotonic() > end:
                        print(f"out of time at {shape} {name}, {'128' if wide_blocks else '64'}-wide blocks")
                        return wrong
                    cell = dict(zip(("B", "H", "Hk", "S", "D"), shape), mask=name)
                    bits = read_bits(arguments.masks, seq, name)
                    if wide_blocks and not same_pairs(name, seq, bits):
                        print(f"BAD {shape} {name}: the peers' mask shows other pairs")
                        wrong = 1
                        continue
                    flops = 4 * batch * heads * dim * int(bits.sum())
                    for peer, call in peers_of(shape, name, bits, q, k, v, wide_blocks):
                        try:
                            us = graph_us(call)
                        except RuntimeError as error:
                            print(f"{peer} {shape} {name}: {str(error).splitlines()[0][:120]}")
                            torch.cuda.synchronize()
                            continue
                        line = {**cell, "impl": peer, "us": round(us, 2), "tflops_visible": round(flops / us / 1e6, 1)}
                        out.write(json.dumps({**line, **facts}) + "\n")
                        out.flush()
    return wrong


if __name__ == "__main__":
    sys.exit(main())
