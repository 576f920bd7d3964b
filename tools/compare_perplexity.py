#!/usr/bin/env python3
"""Compares stof's perplexity of a text with that of transformers on the same checkpoint.

    tools/gguf_to_hf.py FILE.gguf FOLDER
    tools/compare_perplexity.py --folder FOLDER --text TEXT --stof build/cpu-release/cli/stof [--gguf FILE.gguf]

Both read the text window by window as transformers' page on perplexity does. Ends with 1 where
they differ by more than --tolerance. Where stof and transformers are on different machines, --write FILE
keeps what transformers finds, token by token, and --golden FILE compares with it, without torch.
"""
import argparse
import json
import math
import pathlib
import subprocess
import sys
import tempfile

import numpy


def of_transformers(options):
    import torch
    from tokenizers import Tokenizer
    from transformers import AutoModelForCausalLM

    tokenizer = Tokenizer.from_file(options.folder + "/tokenizer.json")
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[options.dtype]
    model = AutoModelForCausalLM.from_pretrained(options.folder, dtype=dtype).eval().to(options.torch_device)
    ids = torch.tensor(tokenizer.encode(pathlib.Path(options.text).read_text()).ids, device=options.torch_device)
    each = [math.nan] * len(ids)
    before = begin = 0
    while before < len(ids):
        end = min(begin + options.window, len(ids))
        with torch.no_grad():
            logits = model(ids[None, begin:end]).logits[0].float()
        first = max(before, begin + 1)  # tokens from here on are scored
        if first < end:
            chosen = torch.log_softmax(logits[first - 1 - begin:end - 1 - begin].double(), dim=-1)
            each[first:end] = chosen.gather(1, ids[first:end, None])[:, 0].tolist()
        before, begin = end, begin + options.stride
        print(f"transformers: {before} of {len(ids)} tokens", file=sys.stderr, flush=True)
    scored = [value for value in each if not math.isnan(value)]
    return {"num_tokens": len(ids), "num_scored": len(scored), "perplexity": math.exp(-math.fsum(scored) / len(scored)),
            "dtype": options.dtype, "window": options.window, "stride": options.stride,
            "log_likelihoods": [None if math.isnan(value) else round(value, 6) for value in each]}


def of_stof(options, output):
    command = [options.stof, "-q", "run", "--task", "perplexity", "--model", options.gguf or options.folder,
               "--file", options.text, "--window", str(options.window), "--stride", str(options.stride), "--json",
               "--device", options.device, "--dtype", options.stof_dtype or options.dtype, "--output", output]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", help="a Hugging Face folder")
    parser.add_argument("--text", required=True, help="a text file")
    parser.add_argument("--stof", help="the program")
    parser.add_argument("--gguf", help="what stof reads instead of the folder")
    parser.add_argument("--window", type=int, default=512)
    parser.add_argument("--stride", type=int, default=256)
    parser.add_argument("--dtype", choices=["fp32", "bf16"], default="fp32", help="of both")
    parser.add_argument("--stof-dtype", choices=["fp32", "bf16", "fp16"], help="of stof, where another")
    parser.add_argument("--device", default="cpu", help="of stof: cpu or cuda")
    parser.add_argument("--torch-device", default="cpu")
    parser.add_argument("--tolerance", type=float, default=0.005)
    parser.add_argument("--write", help="keep what transformers finds in this file")
    parser.add_argument("--golden", help="compare with such a file instead of running transformers")
    options = parser.parse_args()
    theirs = json.loads(pathlib.Path(options.golden).read_text()) if options.golden else of_transformers(options)
    if options.golden and (theirs["window"], theirs["stride"]) != (options.window, options.stride):
        parser.error(f"--golden: has window {theirs['window']} and stride {theirs['stride']}")
    print(f"transformers, {theirs['dtype']}: {theirs['perplexity']:.5f} over {theirs['num_scored']} tokens")
    if options.write:
        pathlib.Path(options.write).write_text(json.dumps(theirs) + "\n")
    if not options.stof:
        return 0
    with tempfile.TemporaryDirectory() as folder:
        ours = of_stof(options, folder + "/each.npy")
        each = numpy.load(folder + "/each.npy")
    wanted = numpy.array([math.nan if value is None else value for value in theirs["log_likelihoods"]])
    worst = numpy.nanmax(numpy.abs(each - wanted)) if each.shape == wanted.shape else math.inf
    apart = ours["perplexity"] / theirs["perplexity"] - 1
    same_tokens = (ours["num_tokens"], ours["num_scored"]) == (theirs["num_tokens"], theirs["num_scored"])
    good = same_tokens and abs(apart) <= options.tolerance
    print(f"stof, {options.stof_dtype or options.dtype}: {ours['perplexity']:.5f} over {ours['num_scored']} tokens: "
          f"{apart:+.4%}, a token's log-likelihood by at most {worst:.1e}; {'good' if good else 'TOO FAR'}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
