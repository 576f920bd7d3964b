#!/usr/bin/env python3
"""Compares stof's last hidden states of a real encoder with those of transformers in float32 on the CPU.

    tools/compare_states.py --stof build/cpu-release/cli/stof --folder ~/.cache/stof/models/all-minilm-l6-v2 \
        --text LICENSE

Each paragraph of the text is a text. Prints the largest difference over the largest value; ends with 1 where
that is above --tolerance.
"""
import argparse
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import torch
from tokenizers import Tokenizer
from transformers import AutoModel


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--stof", required=True, help="the program")
    parser.add_argument("--folder", required=True, help="a Hugging Face folder")
    parser.add_argument("--text", required=True, help="a text file")
    parser.add_argument("--max-tokens", type=int, default=256)
    parser.add_argument("--tolerance", type=float, default=1e-4)
    options = parser.parse_args()
    text = pathlib.Path(options.text).read_text()
    texts = [" ".join(paragraph.split()) for paragraph in text.split("\n\n") if paragraph.strip()]
    tokenizer = Tokenizer.from_file(options.folder + "/tokenizer.json")
    tokenizer.no_padding()
    tokenizer.enable_truncation(options.max_tokens)
    model = AutoModel.from_pretrained(options.folder, dtype=torch.float32).eval()
    theirs = []
    for paragraph in texts:
        with torch.no_grad():
            theirs.append(model(torch.tensor([tokenizer.encode(paragraph).ids])).last_hidden_state[0].numpy())
    theirs = np.concatenate(theirs)
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "texts").write_text("\n".join(texts) + "\n")
        subprocess.run([options.stof, "-q", "run", "--task", "tokens", "--model", options.folder, "--file",
                        folder + "/texts", "--max-tokens", str(options.max_tokens), "--output",
                        folder + "/states.npy"], check=True, stdout=subprocess.DEVNULL)
        ours = np.load(folder + "/states.npy")
    if ours.shape != theirs.shape:
        print(f"stof has states {ours.shape}, transformers {theirs.shape}")
        return 1
    apart = np.abs(ours - theirs).max() / np.abs(theirs).max()
    print(f"{len(texts)} texts, {len(ours)} tokens: largest difference {apart:.1e} of the largest value, "
          f"{'good' if apart <= options.tolerance else 'TOO FAR'}")
    return 0 if apart <= options.tolerance else 1


if __name__ == "__main__":
    sys.exit(main())
