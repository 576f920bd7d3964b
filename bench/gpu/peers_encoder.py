#!/usr/bin/env python3
"""Times a BERT-base encoder with the BigBird mask: stof against torch.compile, in alternating short bursts.

  bench/gpu/peers_encoder.py --program build/cpu-release/bench/gpu/bench_gpu_encoder_e2e --out FILE [--budget SECONDS]

stof answers from a process of its own (bench_gpu_encoder_e2e --serve), the peers run in this one, and both get the same
weights, hidden states and visible pairs; their outputs are compared with a float32 run before anything is timed. Peers:
torch.compile(mode="max-autotune") with SDPA and the mask, and with FlexAttention. A round is one burst of each, in an
order that turns; a burst is a pause, three replays to warm up and REPLAYS timed ones; the figure is the median over all
rounds. The card's clock follows its temperature and power, so only figures of one run may be compared.
Writes one JSON line a measurement (and the compile time of the peers); what the budget leaves no time for is named.
"""

import argparse
import datetime
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import torch
import torch.nn.functional as F
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

PEERS = ("compile_sdpa_mask", "compile_flex")
CELLS = "1x128,1x4096,16x2048,8x512"
LAYERS, WIDTH, HEADS, INNER, EPSILON = 12, 768, 12, 3072, 1e-12
ROUNDS, REPLAYS, PAUSE_S = 5, 7, 0.1
DEVICE = "cuda"
TOLERANCE = 3e-2  # relative error of the whole output in bfloat16, twelve layers deep


class Server:
    """The program's --serve mode."""

    def __init__(self, program):
        self.process = subprocess.Popen([str(program), "--serve", "on"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True, bufsize=1)

    def ask(self, *words):
        self.process.stdin.write(" ".join(str(word) for word in words) + "\n")
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.process.args[0]} ended with {self.process.wait()} at: {' '.join(map(str, words))}")
        answer = json.loads(line)
        if "error" in answer:
            raise SystemExit(f"{' '.join(map(str, words))}: {answer['error']}")
        return answer

    def end(self):
        self.process.stdin.close()
        self.process.wait()


class Layer(torch.nn.Module):
    """A BERT layer, q, k and v in one product, attention given: torch.compile's best case."""

    def __init__(self, weights, index):
        super().__init__()
        base = f"encoder.layer.{index}."

        def parameter(*names):
            parts = [weights[base + name] for name in names]
            return torch.nn.Parameter(torch.cat(parts) if len(parts) > 1 else parts[0], requires_grad=False)

        inputs = [f"attention.self.{part}." for part in ("query", "key", "value")]
        for name, sources in {"qkv": inputs, "out": ["attention.output.dense."], "up": ["intermediate.dense."],
                              "down": ["output.dense."], "norm_1": ["attention.output.LayerNorm."],
                              "norm_2": ["output.LayerNorm."]}.items():
            self.register_parameter(f"{name}_weight", parameter(*[source + "weight" for source in sources]))
            self.register_parameter(f"{name}_bias", parameter(*[source + "bias" for source in sources]))

    def forward(self, x, attention):
        batch, seq, width = x.shape
        qkv = F.linear(x, self.qkv_weight, self.qkv_bias).view(batch, seq, 3, HEADS, width // HEADS)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        context = attention(q, k, v).transpose(1, 2).reshape(batch, seq, width)
        x = F.layer_norm(x + F.linear(context, self.out_weight, self.out_bias), (width,), self.norm_1_weight,
                         self.norm_1_bias, EPSILON)
        inner = F.gelu(F.linear(x, self.up_weight, self.up_bias))
        return F.layer_norm(x + F.linear(inner, self.down_weight, self.down_bias), (width,), self.norm_2_weight,
                            self.norm_2_bias, EPSILON)


class Encoder(torch.nn.Module):
    def __init__(self, weights):
        super().__init__()
        self.layers = torch.nn.ModuleList([Layer(weights, index) for index in range(LAYERS)])

    def forward(self, x, attention):
        for layer in self.layers:
            x = layer(x, attention)
        return x


def read_bits(path, seq):
    """The mask as bool [seq, seq] on the GPU."""
    words = torch.frombuffer(bytearray(path.read_bytes()), dtype=torch.uint8).to(DEVICE)
    shifts = torch.arange(8, device=DEVICE, dtype=torch.uint8)
    return ((words[:, None] >> shifts) & 1).bool().reshape(seq, seq)


def attentions(mask):
    """(peer's name, attention) for the mask."""
    seq = len(mask)
    blocks = mask[::64, ::64].contiguous()
    if not torch.equal(blocks.repeat_interleave(64, 0).repeat_interleave(64, 1), mask):
        raise SystemExit(f"BigBird at {seq}: expected a mask of whole 64x64 blocks")
    block_mask = create_block_mask(lambda b, h, q, k: blocks[q // 64, k // 64], None, None, seq, seq, device=DEVICE)
    yield "compile_flex", lambda q, k, v: flex_attention(q, k, v, block_mask=block_mask)
    yield "compile_sdpa_mask", lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def parse_cells(text):
    """[(batch, sequence length, peers)] of "1x128,8x512:compile_flex"."""
    cells = []
    for cell in text.split(","):
        shape, _, peer = cell.partition(":")
        if peer and peer not in PEERS:
            raise argparse.ArgumentTypeError(f"{cell}: expected a peer of {', '.join(PEERS)}")
        batch, seq = (int(part) for part in shape.split("x"))
        cells.append((batch, seq, (peer,) if peer else PEERS))
    return cells


def relative_error(got, want):
    return float((got.double() - want.double()).norm() / want.double().norm())


def burst_ms(call):
    """Milliseconds of REPLAYS calls after a pause."""
    torch.cuda.synchronize()
    time.sleep(PAUSE_S)
    for _ in range(3):
        call()
    times = []
    for _ in range(REPLAYS):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        call()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    return times


def server_burst_ms(server, batch, seq, variant):
    torch.cuda.synchronize()
    time.sleep(PAUSE_S)
    return server.ask("time", batch, seq, REPLAYS, variant)["ms"]


def float32_output(weights, x, mask):
    """The oracle of all outputs; one text at a time, as a dense float32 score matrix is large."""
    model = Encoder({name: weight.float() for name, weight in weights.items()}).to(DEVICE)
    attention = lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=mask)  # noqa: E731
    with torch.no_grad():
        return torch.cat([model(text[None].float(), attention) for text in x])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=pathlib.Path, required=True, help="bench_gpu_encoder_e2e")
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--commit", default="", help="named in each line")
    parser.add_argument("--budget", type=float, default=540, help="seconds")
    parser.add_argument("--variants", default="tuned,both,fusion,attention,library", help="of stof")
    parser.add_argument("--tune", type=float, default=20, help="seconds of stof's search a shape")
    parser.add_argument("--cells", type=parse_cells, default=CELLS,
                        help="BxS[:PEER],...; without a peer all of them (default: %(default)s)")
    arguments = parser.parse_args()
    from safetensors.torch import load_file  # of transformers; named late so that --help works without it

    end = time.monotonic() + arguments.budget
    torch._dynamo.config.recompile_limit = 64
    facts = {"commit": arguments.commit, "gpu": torch.cuda.get_device_name(), "torch": torch.__version__,
             "date": datetime.date.today().isoformat(), "model": "bert-base", "mask": "bigbird", "dtype": "bfloat16"}
    folder = pathlib.Path(tempfile.mkdtemp(prefix="stof_peers_"))
    server = Server(arguments.program.resolve())
    server.ask("weights", folder / "weights.safetensors")
    weights = {name: weight.to(DEVICE, torch.bfloat16)
               for name, weight in load_file(folder / "weights.safetensors").items()}
    model = Encoder(weights).to(DEVICE).eval()
    wrong = 0
    with arguments.out.open("w") as out:
        for batch, seq, wanted in arguments.cells:
            if time.monotonic() > end:
                print(f"out of time at ({batch},{seq})")
                return 1
            cell = {"B": batch, "S": seq, **facts}
            server.ask("mask", seq, folder / "mask.bits")
            mask = read_bits(folder / "mask.bits", seq)
            server.ask("input", batch, seq, folder / "input.f32")
            x = torch.frombuffer(bytearray((folder / "input.f32").read_bytes()), dtype=torch.float32)
            x = x.reshape(batch, seq, WIDTH).to(DEVICE)
            want = float32_output(weights, x, mask)
            x = x.to(torch.bfloat16)
            server.ask("output", batch, seq, folder / "output.f32")
            got = torch.frombuffer(bytearray((folder / "output.f32").read_bytes()), dtype=torch.float32)
            error = relative_error(got.reshape(want.shape).to(DEVICE), want)
            wrong += error > TOLERANCE
            print(f"({batch},{seq}) stof: relative error {error:.2e}", flush=True)
            tuned = server.ask("tune", batch, seq, arguments.tune)
            print(f"({batch},{seq}) {tuned}", flush=True)
            for peer, attention in attentions(mask):
                if peer not in wanted:
                    continue
                torch._dynamo.reset()
                compiled = torch.compile(model, mode="max-autotune", dynamic=False)
                begun = time.monotonic()
                with torch.no_grad():
                    result = compiled(x, attention).clone()
                torch.cuda.synchronize()
                seconds = time.monotonic() - begun
                error = relative_error(result, want)
                wrong += error > TOLERANCE
                print(f"({batch},{seq}) {peer}: relative error {error:.2e}, compiled in {seconds:.0f} s", flush=True)

                def call(compiled=compiled, attention=attention, x=x):
                    with torch.no_grad():
                        compiled(x, attention)

                # One peer's graphs are alive at a time: this one now, against every variant.
                contestants = {peer: lambda call=call: burst_ms(call)}
                for variant in arguments.variants.split(","):
                    contestants[f"stof/{variant}"] = (
                        lambda variant=variant: server_burst_ms(server, batch, seq, variant))
                times = {name: [] for name in contestants}
                names = list(contestants)
                for turn in range(ROUNDS):
                    for name in names[turn % len(names):] + names[:turn % len(names)]:
                        times[name] += contestants[name]()
                for name, values in times.items():
                    impl, _, variant = name.partition("/")
                    line = {**cell, "impl": impl, "variant": variant, "beside": peer,
                            "ms": round(statistics.median(values), 4), "least_ms": round(min(values), 4),
                            "tune_s": round(seconds, 1) if impl == peer
                            else tuned["tune_s"] if variant == "tuned" else 0}
                    out.write(json.dumps(line) + "\n")
                    out.flush()
                    print(f"({batch},{seq}) {name}: {line['ms']:.3f} ms beside {peer}", flush=True)
    server.end()
    if wrong:
        print(f"BAD: {wrong} outputs are off by more than {TOLERANCE}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
