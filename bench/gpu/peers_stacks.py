#!/usr/bin/env python3
"""Times models' stacks of layers under sparse masks: stof against torch.compile, in alternating short bursts.

  bench/gpu/peers_stacks.py --program build/cpu-release/bench/gpu/bench_gpu_stacks_e2e --out FILE [--models NAME,...]

stof answers from a process of its own (bench_gpu_stacks_e2e --serve), the peers run in this one, and both get the same
weights, hidden states and visible pairs; their outputs are compared with a float32 run before anything is timed. Peers:
torch.compile(mode="max-autotune") with SDPA and the mask, and with FlexAttention. A round is one burst of each, in an
order that turns; a burst is a pause, three replays to warm up and REPLAYS timed ones; the figure is the median over all
rounds. The card's clock follows its temperature and power, so only figures of one run may be compared.
Of an encoder with a decoder (T5) the peers read position biases as fits them best: SDPA from a bfloat16 mask of biases
and -inf, FlexAttention from a table by distance in its score modification; either is made outside of what is timed.
Cross-attention is SDPA without a mask on both sides' peers.
Writes one JSON line a measurement (and the compile time of the peers); what the budget leaves no time for is named.
From ATEN_ROWS rows on max-autotune is told to take cuBLAS: its Triton templates lose there (by 18 % and more in every
product of ViT at 25216 rows), and trying them takes a minute a shape. memory_mib is what stof's process took for the model and its largest shape so far, and what
torch held for this cell.
--device cpu needs no GPU and times nothing: it compares stof's CPU kernels and the peers, as they are without
torch.compile, with that float32 run.
"""

import argparse
import dataclasses
import datetime
import json
import math
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import torch
import torch._inductor.config
import torch.nn.functional as F
from peers_models import MODELS, attentions, attentions_with_biases, rotation_of, stack_of

PEERS = ("compile_sdpa_mask", "compile_flex", "compile_sdpa")
ATEN_ROWS = 4096
ROUNDS, REPLAYS, PAUSE_S = 5, 7, 0.1
DEVICE = "cuda"  # main() takes another
DTYPES = {"cuda": torch.bfloat16, "cpu": torch.float32}
TOLERANCE = 3e-2  # relative error of the whole output in bfloat16, up to 24 layers deep
TOLERANCE_CPU = 1e-4  # in float32


class Server:
    """The program's --serve mode."""

    def __init__(self, program, *arguments):
        command = [str(program), *map(str, arguments), "--serve", "on"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)

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


def read_bits(path, seq):
    """The mask as bool [seq, seq] on the GPU."""
    words = torch.frombuffer(bytearray(path.read_bytes()), dtype=torch.uint8).to(DEVICE)
    shifts = torch.arange(8, device=DEVICE, dtype=torch.uint8)
    return ((words[:, None] >> shifts) & 1).bool().reshape(seq, seq)


def parse_cells(text):
    """[(batch, sequence length, peers)] of "1x128,8x512:compile_flex"."""
    cells = []
    for cell in text.split(","):
        shape, _, peer = cell.partition(":")
        if peer and peer not in PEERS:
            raise argparse.ArgumentTypeError(f"{cell}: expected a peer of {', '.join(PEERS)}")
        batch, seq = (int(part) for part in shape.split("x"))
        cells.append((batch, seq, (peer,) if peer else ()))
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


def float32_output(sizes, weights, x, mask):
    """The oracle of all outputs; one text at a time, as a dense float32 score matrix is large."""
    wide = {name: weight.float() for name, weight in weights.items()}
    model = stack_of(sizes, wide)
    groups = sizes.heads // sizes.kv_heads
    attention = lambda q, k, v: F.scaled_dot_product_attention(  # noqa: E731
        q, k.repeat_interleave(groups, dim=1), v.repeat_interleave(groups, dim=1), attn_mask=mask)
    if sizes.t5:
        attention = next(of for peer, of in attentions_with_biases(mask, wide, torch.float32) if "sdpa" in peer)
    rotation = rotation_of(wide, x.shape[-2], torch.float32)
    with torch.no_grad():
        return torch.cat([model(text.float(), attention, rotation) for text in x.split(1, dim=-3)])


def read_floats(path):
    return torch.frombuffer(bytearray(path.read_bytes()), dtype=torch.float32).to(DEVICE)


class Cell:
    """One shape: what goes in, what must come out, and the times of stof beside each peer."""

    def __init__(self, server, folder, sizes, weights, shape, arguments, facts):
        self.server, self.sizes, self.weights, self.arguments = server, sizes, weights, arguments
        self.batch, self.seq = shape
        self.line = {"B": self.batch, "S": self.seq, **facts}
        self.mask = None
        if facts["mask"] != "dense":
            server.ask("mask", self.seq, folder / "mask.bits")
            self.mask = read_bits(folder / "mask.bits", self.seq)
        server.ask("input", self.batch, self.seq, folder / "input.f32")
        x = read_floats(folder / "input.f32").reshape(*(2,) * sizes.t5, self.batch, self.seq, -1)
        self.want = float32_output(sizes, weights, x, self.mask).cpu()
        self.x = x.to(DTYPES[DEVICE])
        self.wrong = 0
        torch.cuda.empty_cache()
        server.ask("output", self.batch, self.seq, folder / "output.f32", arguments.variants[0])
        self.memory_mib = 0 if DEVICE == "cpu" else server.ask("memory")["memory"] / 2**20
        self.check("stof", read_floats(folder / "output.f32").reshape(self.want.shape))
        self.tuned = {"tune_s": 0}
        if DEVICE == "cuda" and "tuned" in arguments.variants:
            self.tuned = server.ask("tune", self.batch, self.seq, arguments.tune)
            self.say(str(self.tuned))

    def say(self, text):
        print(f"{self.line['model']} ({self.batch},{self.seq}) {text}", flush=True)

    def check(self, name, got):
        error = relative_error(got.cpu(), self.want)
        self.wrong += error > (TOLERANCE if DEVICE == "cuda" else TOLERANCE_CPU)
        self.say(f"{name}: relative error {error:.2e}")

    def run_on_cpu(self, peer, attention):
        with torch.no_grad():
            model = stack_of(self.sizes, self.weights)
            self.check(peer, model(self.x, attention, rotation_of(self.weights, self.seq, torch.float32)))

    def run(self, peer, attention, out):
        """Compiles the peer, then times it and every variant of stof in turn."""
        torch._dynamo.reset()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        model = stack_of(self.sizes, self.weights)
        rotation = rotation_of(self.weights, self.seq, torch.bfloat16)
        backends = "ATEN" if self.batch * self.seq >= ATEN_ROWS else "ATEN,TRITON"
        torch._inductor.config.max_autotune_gemm_backends = backends
        compiled = torch.compile(model, mode="max-autotune", dynamic=False)
        begun = time.monotonic()

        def call():
            with torch.no_grad():
                return compiled(self.x, attention, rotation)

        result = call().clone()
        torch.cuda.synchronize()
        seconds = time.monotonic() - begun
        memory_mib = torch.cuda.max_memory_reserved() / 2**20
        self.check(f"{peer}, compiled in {seconds:.0f} s", result)
        # One peer's graphs are alive at a time: this one now, against every variant.
        contestants = {peer: lambda: burst_ms(call)}
        for variant in self.arguments.variants:
            contestants[f"stof/{variant}"] = (
                lambda variant=variant: server_burst_ms(self.server, self.batch, self.seq, variant))
        times = {name: [] for name in contestants}
        names = list(contestants)
        for turn in range(ROUNDS):
            for name in names[turn % len(names):] + names[:turn % len(names)]:
                times[name] += contestants[name]()
        for name, values in times.items():
            impl, _, variant = name.partition("/")
            line = {**self.line, "impl": impl, "variant": variant, "beside": peer,
                    "ms": round(statistics.median(values), 4), "least_ms": round(min(values), 4),
                    "memory_mib": round(memory_mib if impl == peer else self.memory_mib),
                    "tune_s": round(seconds, 1) if impl == peer
                    else self.tuned["tune_s"] if variant == "tuned" else 0}
            out.write(json.dumps(line) + "\n")
            out.flush()
            self.say(f"{name}: {line['ms']:.3f} ms beside {peer}, {line['memory_mib']} MiB")


def run_model(model, arguments, end, out):
    """How many outputs were wrong; None where the time was up."""
    from safetensors.torch import load_file  # of transformers; named late so that --help works without it

    sizes = dataclasses.replace(MODELS[model], layers=arguments.layers or MODELS[model].layers)
    facts = {"commit": arguments.commit, "gpu": torch.cuda.get_device_name() if DEVICE == "cuda" else "", "torch": torch.__version__,
             "date": datetime.date.today().isoformat(), "model": model, "layers": sizes.layers, "mask": sizes.mask,
             "dtype": "bfloat16"}
    folder = pathlib.Path(tempfile.mkdtemp(prefix="stof_peers_"))
    on_cpu = ("--device", "cpu") if DEVICE == "cpu" else ()
    server = Server(arguments.program.resolve(), "--model", model, "--layers", sizes.layers, *on_cpu)
    server.ask("weights", folder / "weights.safetensors")
    wide = ("rope.frequencies", "position_bias")
    weights = {name: weight.to(DEVICE, torch.float32 if name.endswith(wide) else DTYPES[DEVICE])
               for name, weight in load_file(folder / "weights.safetensors").items()}
    wrong = 0
    for batch, seq, wanted in arguments.cells or sizes.cells:
        cell = Cell(server, folder, sizes, weights, (batch, seq), arguments, facts)
        for peer, attention in attentions(sizes, cell.mask, weights, DTYPES[DEVICE]):
            if wanted and peer not in wanted:
                continue
            if time.monotonic() > end:
                cell.say(f"{peer}: out of time")
                return None
            if DEVICE == "cpu":
                cell.run_on_cpu(peer, attention)
            else:
                cell.run(peer, attention, out)
        wrong += cell.wrong
    server.end()
    shutil.rmtree(folder)
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=pathlib.Path, required=True, help="bench_gpu_stacks_e2e")
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--device", choices=DTYPES, default="cuda")
    parser.add_argument("--commit", default="", help="named in each line")
    parser.add_argument("--budget", type=float, default=540, help="seconds")
    parser.add_argument("--models", type=lambda text: text.split(","), default=["bert-base"],
                        help=f"some of {','.join(MODELS)} (default: bert-base)")
    parser.add_argument("--layers", type=int, help="of each model, on both sides; fewer compile faster")
    parser.add_argument("--variants", type=lambda text: text.split(","),
                        default=["both", "tuned", "fusion", "attention", "library"], help="of stof")
    parser.add_argument("--tune", type=float, default=20, help="seconds of stof's search a shape")
    parser.add_argument("--cells", type=parse_cells, help="BxS[:PEER],...; without a peer all of them")
    arguments = parser.parse_args()
    global DEVICE
    DEVICE = arguments.device
    end = time.monotonic() + arguments.budget
    torch._dynamo.config.recompile_limit = 64
    wrong = 0
    with arguments.out.open("w") as out:
        for model in arguments.models:
            got = run_model(model, arguments, end, out)
            if got is None:
                return 1
            wrong += got
    if wrong:
        print(f"BAD: {wrong} outputs are off by more than {TOLERANCE if DEVICE == 'cuda' else TOLERANCE_CPU}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
