#!/usr/bin/env python3
"""Compares stof's greedy text from a checkpoint with that of transformers in float32 on the CPU.

    tools/gguf_to_hf.py FILE.gguf FOLDER
    tools/compare_generation.py --stof build/cpu-release/cli/stof --folder FOLDER [--gguf FILE.gguf]

Prints the prompts and whether all token ids are the same; ends with 1 where they are not. With --gguf,
stof reads that file instead of the folder.
"""
import argparse
import json
import os
import subprocess
import sys

import torch
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM

PROMPTS = [
    "The capital of France is",
    "def fibonacci(n):\n",
    "<|im_start|>user\nWhat is a hash table? Answer in two sentences.<|im_end|>\n<|im_start|>assistant\n",
    "Once upon a time, in a village by the sea, there lived",
]


def encoder_of(folder):
    """Text to ids, by tokenizer.json or, where there is none, by SentencePiece's tokenizer.model behind BOS."""
    if os.path.exists(folder + "/tokenizer.json"):
        tokenizer = Tokenizer.from_file(folder + "/tokenizer.json")
        return lambda text: tokenizer.encode(text).ids
    import sentencepiece
    processor = sentencepiece.SentencePieceProcessor(model_file=folder + "/tokenizer.model")
    with open(folder + "/tokenizer_config.json") as file:
        config = json.load(file)
    before = [processor.piece_to_id(config["bos_token"])] if config["add_bos_token"] else []
    return lambda text: before + processor.encode(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--stof", required=True, help="the program")
    parser.add_argument("--folder", required=True, help="a Hugging Face folder in float32")
    parser.add_argument("--gguf", help="what stof reads instead")
    parser.add_argument("--tokens", type=int, default=64)
    options = parser.parse_args()
    encode = encoder_of(options.folder)
    model = AutoModelForCausalLM.from_pretrained(options.folder, dtype=torch.float32).eval()
    failed = False
    for prompt in PROMPTS:
        ids = torch.tensor([encode(prompt)])
        with torch.no_grad():
            theirs = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, pad_token_id=0,
                                    max_new_tokens=options.tokens)[0, ids.shape[1]:].tolist()
        command = [options.stof, "run", "--model", options.gguf or options.folder, "--prompt", prompt,
                   "--max-tokens", str(options.tokens), "--json"]
        ours = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["ids"]
        same = ours == theirs
        failed |= not same
        print(f"{len(theirs)} tokens {'identical' if same else 'DIFFERENT'}: {prompt!r}", flush=True)
        if not same:
            print(f"  transformers {theirs}\n  stof         {ours}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
