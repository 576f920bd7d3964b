#!/usr/bin/env python3
"""Prints the table of attention on the GPU that README.md and the kernel's notes show, from bench/results.

  tools/attention_table.py                 the table and what stands under it
  tools/attention_table.py --check FILE... whether the files show that table and those figures

Ours: the lines of attention_h200.jsonl that are marked as picked by the cost model. Peers: the fastest of each cell in
attention_peers_h200.jsonl. Exit codes: 0 as it should be; 1 a file shows something else.
"""

import argparse
import json
import math
import pathlib
import re
import sys

RESULTS = pathlib.Path(__file__).resolve().parent.parent / "bench" / "results"
SHAPES = [(16, 12, 12, 2048, 64), (1, 32, 32, 4096, 128), (1, 32, 8, 16384, 128)]
NAMES = {"dense": "dense", "causal": "causal", "sliding": "sliding", "causal_window": "causal window",
         "longformer": "longformer", "bigbird": "bigbird", "document": "document", "random_block": "random blocks",
         "random_elem": "random elements", "dilated": "dilated", "strided": "strided"}
WITHIN = 1.05  # of the fastest candidate
# How the pages put what this script prints, {} being the figure.
SAID = {"cells with a peer": r"(cells with a peer: {}|\b{} cells)\b",
        "geometric mean": r"geometric mean( is| over \d+ cells|:) {}\b",
        "lowest": r"lowest:? {}\b"}


def read_lines(name):
    return [json.loads(line) for line in (RESULTS / name).read_text(encoding="utf-8").splitlines()]


def cell_of(line):
    return (line["B"], line["H"], line["Hk"], line["S"], line["D"]), line["mask"]


def summarise():
    """The table's lines, and the figures under it by name."""
    ours = [line for line in read_lines("attention_h200.jsonl") if line["impl"] == "stof"]
    picked = {cell_of(line): line for line in ours if line.get("picked")}
    fastest, peers = {}, {}
    for line in ours:
        fastest[cell_of(line)] = min(line["us"], fastest.get(cell_of(line), math.inf))
    for line in read_lines("attention_peers_h200.jsonl"):
        peers[cell_of(line)] = min(line["us"], peers.get(cell_of(line), math.inf))
    ratios = {cell: peers[cell] / picked[cell]["us"] for cell in picked if cell in peers}
    table = ["| mask |" + "".join(f" ({','.join(map(str, shape))}) | peer / ours |" for shape in SHAPES),
             "|---|" + "---|---|" * len(SHAPES)]
    for mask, name in NAMES.items():
        row = "".join(f" {picked[shape, mask]['tflops_visible']:.0f} | x{ratios[shape, mask]:.2f} |" for shape in SHAPES)
        table.append(f"| {name} |{row}")
    good = sum(line["us"] <= WITHIN * fastest[cell] for cell, line in picked.items())
    figures = {"cells with a peer": str(len(ratios)),
               "geometric mean": f"{math.exp(sum(map(math.log, ratios.values())) / len(ratios)):.2f}",
               "lowest": f"{min(ratios.values()):.2f}",
               "picks within 5 %": f"{good} of {len(picked)}"}
    return table, figures


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", nargs="+", type=pathlib.Path, metavar="FILE")
    arguments = parser.parse_args()
    table, figures = summarise()
    if not arguments.check:
        print("\n".join(table))
        print("\n" + "\n".join(f"{name}: {value}" for name, value in figures.items()))
        return 0
    wrong = 0
    for path in arguments.check:
        text = path.read_text(encoding="utf-8")
        for line in table:
            if line not in text.splitlines():
                print(f"{path}: expected the line\n  {line}\nas bench/results says; see tools/attention_table.py")
                wrong = 1
        for name, pattern in SAID.items():
            if not re.search(pattern.replace("{}", re.escape(figures[name])), text, re.IGNORECASE):
                print(f"{path}: {name}: expected {figures[name]}, as bench/results says; see tools/attention_table.py")
                wrong = 1
    return wrong


if __name__ == "__main__":
    sys.exit(main())
