"""Similar sentences and a text that is written, with two small models, on the CPU in seconds.

python examples/models.py [FOLDER]

FOLDER has all-minilm-l6-v2 and smollm2-135m-instruct, by default where `scripts/setup --models` puts
them. Needs NumPy.
"""

import os
import sys
from pathlib import Path

import stof

cache = Path(os.environ.get("STOF_CACHE") or Path.home() / ".cache/stof")
folder = Path(sys.argv[1]) if len(sys.argv) > 1 else cache / "models"

sentences = ["A cat sleeps on the sofa.", "A kitten naps.", "Stock prices fell."]
with stof.load(folder / "all-minilm-l6-v2", device="auto") as encoder:
    print(encoder.description)
    vectors = encoder.embed(sentences)  # float32 [3, 384], of length 1
    local = encoder.embed(sentences, mask="window(2, 2) | global(1, 1)")
for name, found in (("all tokens", vectors), ("a window of 2", local)):
    print(f"cosine similarity, {name}:")
    for row in found @ found.T:
        print("  " + " ".join(f"{value:.2f}" for value in row))

with stof.load(folder / "smollm2-135m-instruct", device="auto") as generator:
    print(generator.description)
    prompt = generator.chat_prompt("What is a hash table? Answer in one sentence.")
    # Each token sees the first 4 and those up to 255 before it.
    mask = stof.masks.streaming(num_sinks=4, w=255)
    for piece in generator.generate(prompt, mask=mask, max_tokens=24, stop=".", stream=True):
        print(piece, end="", flush=True)
    print()
