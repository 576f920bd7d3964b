#!/usr/bin/env python3
"""Writes src/model/bpe_tables.cc: which code points are letters and numbers for the patterns of
byte-level BPE, found by asking the Hugging Face `tokenizers` library about every one. Its regular
expressions and its step "Digits" follow different Unicode versions.

    pip install tokenizers && tools/make_bpe_tables.py > src/model/bpe_tables.cc
"""
import tokenizers
from tokenizers import Regex, pre_tokenizers

code_points = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]


def matching(pattern):
    split = pre_tokenizers.Split(Regex(pattern), "removed")
    return [c for c in code_points if not split.pre_tokenize_str(chr(c))]


def emit(name, values):
    ranges = []
    for c in values:
        if ranges and ranges[-1][1] == c - 1:
            ranges[-1][1] = c
        else:
            ranges.append([c, c])
    print(f"const CodePointRange {name}[] = {{")
    line = "   "
    for first, last in ranges:
        cell = f" {{0x{first:X}, 0x{last:X}}},"
        if len(line) + len(cell) > 100:
            print(line)
            line = "   "
        line += cell
    print(f"{line}\n}};\nconst std::size_t {name}Size = std::size({name});\n")


def main():
    digits = pre_tokenizers.Digits(individual_digits=True)
    numbers = matching(r"\p{N}")
    isolated = {c for c in code_points if len(digits.pre_tokenize_str("a" + chr(c))) == 2}
    assert isolated.issuperset(numbers), "Digits knows fewer numbers than the patterns"
    print(f"// Written by tools/make_bpe_tables.py with tokenizers {tokenizers.__version__}; do not edit.")
    print('\n#include <iterator>\n\n#include "model/unicode_tables.h"\n\nnamespace stof::model {\n')
    print("// clang-format off")
    emit("kLetters", matching(r"\p{L}"))
    emit("kNumbers", numbers)
    emit("kNewNumbers", sorted(isolated.difference(numbers)))
    print("// clang-format on\n\n}  // namespace stof::model")


if __name__ == "__main__":
    main()
