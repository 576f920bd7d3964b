#!/usr/bin/env python3
"""Writes src/model/unicode_tables.cc: what the Hugging Face `tokenizers` library believes about
every code point, found by asking it.

WordPiece ids depend on these beliefs, and they follow no single Unicode version: its category
tables are older than its lower-casing, and its normalisation is older than utf8proc's. So the
tables are probed, one code point at a time, rather than derived from a Unicode release.

    pip install tokenizers && tools/make_wordpiece_tables.py > src/model/unicode_tables.cc
"""
import sys
import unicodedata

import tokenizers
from tokenizers import normalizers, pre_tokenizers


def bert(**on):
    options = dict(clean_text=False, handle_chinese_chars=False, strip_accents=False, lowercase=False)
    return normalizers.BertNormalizer(**{**options, **on})


clean, lower, accents = bert(clean_text=True), bert(lowercase=True), bert(strip_accents=True)
nfd, split = normalizers.NFD(), pre_tokenizers.BertPreTokenizer()
code_points = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]

control = [c for c in code_points if c not in (0, 0xFFFD) and clean.normalize_str(chr(c)) == ""]
punctuation = [c for c in code_points if len(split.pre_tokenize_str(f"a{chr(c)}a")) == 3]
marks = [c for c in code_points
         if nfd.normalize_str(chr(c)) == chr(c) and accents.normalize_str(chr(c)) == ""]


def is_reordered(c):
    # U+0345 has the highest combining class there is, so any other mark moves before it.
    return nfd.normalize_str("a\u0345" + chr(c)) != "a\u0345" + chr(c)


stable = [c for c in code_points if nfd.normalize_str(chr(c)) == chr(c)]
combining = {c: unicodedata.combining(chr(c)) for c in stable if is_reordered(c)}
combining[0x345] = 240
assert all(combining.values()), "a mark is newer than this Python's unicodedata"

lower_of = {c: lower.normalize_str(chr(c)) for c in code_points}
lower_pairs = [(c, ord(s)) for c, s in lower_of.items() if len(s) == 1 and s != chr(c)]
assert [c for c, s in lower_of.items() if len(s) > 1] == [0x130], "only U+0130 lowers to two"
decomposed = [(c, nfd.normalize_str(chr(c))) for c in code_points
              if not 0xAC00 <= c < 0xD7A4 and nfd.normalize_str(chr(c)) != chr(c)]


def runs(values, key=lambda c: 0):
    out = []
    for c in values:
        if out and out[-1][1] == c - 1 and out[-1][2] == key(c):
            out[-1][1] = c
        else:
            out.append([c, c, key(c)])
    return out


def lower_runs(pairs):
    """(first, last, step, delta): letters `step` apart that all lower by the same delta."""
    out = []
    for c, to in pairs:
        if out:
            first, last, step, delta = out[-1]
            gap = c - last
            if to - c == delta and gap in (1, 2) and (step in (0, gap)):
                out[-1] = [first, c, gap, delta]
                continue
        out.append([c, c, 0, to - c])
    return [[a, b, step or 1, d] for a, b, step, d in out]


def emit(kind, name, rows):
    print(f"const {kind} {name}[] = {{")
    line = "   "
    for row in rows:
        cell = " {" + ", ".join(row) + "},"
        if len(line) + len(cell) > 100:
            print(line)
            line = "   "
        line += cell
    print(line)
    print("};")
    print(f"const std::size_t {name}Size = std::size({name});\n")


print(f"""// Written by tools/make_wordpiece_tables.py from tokenizers {tokenizers.__version__}; do not edit.

#include "model/unicode_tables.h"

#include <iterator>

namespace stof::model {{

// clang-format off""")
for name, values in (("kControl", control), ("kPunctuation", punctuation), ("kNonspacing", marks)):
    emit("CodePointRange", name, [[f"{a:#x}", f"{b:#x}"] for a, b, _ in runs(values)])
emit("CombiningRange", "kCombining",
     [[f"{a:#x}", f"{b:#x}", str(k)] for a, b, k in runs(sorted(combining), combining.get)])
emit("LowerRange", "kLower", 
     [[f"{a:#x}", f"{b:#x}", str(s), str(d)] for a, b, s, d in lower_runs(lower_pairs)])
print("// clang-format on\n\n}  // namespace stof::model")
print(f"{len(decomposed)} canonical decompositions are left to utf8proc", file=sys.stderr)
