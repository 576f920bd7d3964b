#!/usr/bin/env python3
"""What a call costs before and after the kernel: the least of many repetitions, in microseconds.

    python python/bench/host_overhead.py [--device cuda] [--json FILE]

NumPy is measured always, torch where it is installed. "mocked" calls a plan whose native run does
nothing; "real" computes 16 tokens on one thread, or launches them. The goals are 15 us for Plan.run() and
5 us for the look-up, which is attention() less Plan.run().
"""

import argparse
import itertools
import json
import time

import numpy as np
import stof
from stof import again, masks

ROUNDS, CALLS = 300, 50  # short rounds, some of which nothing interrupts


def microseconds(call):
    for _ in range(CALLS):
        call()
    best = float("inf")
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        for _ in range(CALLS):
            call()
        best = min(best, time.perf_counter() - begun)
    return 1e6 * best / CALLS


def idle(*arguments):
    return 0


def measure(framework, qkv, device):
    mask = masks.causal() & masks.window(7, 0)
    dtype = str(qkv[0].dtype).removeprefix("torch.")
    plan = stof.plan(mask, batch=1, num_heads=1, seq_q=16, head_dim=8, dtype=dtype, device=device)
    result = {"framework": framework, "device": device}
    result["real_run_us"] = microseconds(lambda: plan.run(*qkv))
    native, quick = plan._run, again.plan_run
    plan._run, again.plan_run = idle, lambda: idle
    try:
        result["mocked_run_us"] = microseconds(lambda: plan.run(*qkv))
        many = [mask, *(masks.causal() & masks.window(left, 0) for left in range(8, 19))]
        longer = [
            np.concatenate([x, x], 2) if framework == "numpy" else x.repeat(1, 1, 2, 1) for x in qkv
        ]
        for kept in many:
            stof.attention(*qkv, kept)
        stof.attention(*longer, mask)
        for cached in stof.cache.plans._plans.all():
            cached._run = idle
        # The same mask object; 12 in turn; two lengths in turn; equal masks, found by their content.
        result["mocked_attention_us"] = microseconds(lambda: stof.attention(*qkv, mask))
        others = itertools.cycle(many)
        result["mocked_attention_12_masks_us"] = microseconds(
            lambda: stof.attention(*qkv, next(others))
        )
        lengths = itertools.cycle([qkv, longer])
        result["mocked_attention_two_lengths_us"] = microseconds(
            lambda: stof.attention(*next(lengths), mask)
        )
        equal = itertools.cycle([masks.window(7, 0) & masks.causal() for _ in range(100)])
        result["mocked_attention_equal_masks_us"] = microseconds(
            lambda: stof.attention(*qkv, next(equal))
        )
    finally:
        plan._run, again.plan_run = native, quick
        stof.cache_clear()
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu", help="of torch's tensors: cpu or cuda")
    parser.add_argument("--json", help="append one line a measurement to this file")
    options = parser.parse_args()
    shape = (1, 1, 16, 8)
    results = [measure("numpy", [np.ones(shape, np.float32) for _ in range(3)], "cpu")]
    try:
        import torch
    except ImportError:
        print("torch is not installed: NumPy alone is measured")
    else:
        torch.set_grad_enabled(False)
        dtype = torch.float32 if options.device == "cpu" else torch.float16
        tensors = [torch.ones(shape, dtype=dtype, device=options.device) for _ in range(3)]
        results.append(measure("torch", tensors, options.device))
    for result in results:
        print(f"{result['framework']} on {result['device']}")
        for name, value in result.items():
            if isinstance(value, float):
                print(f"  {name:34} {value:8.2f}")
    if options.json:
        with open(options.json, "a", encoding="utf-8") as file:
            for result in results:
                file.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
