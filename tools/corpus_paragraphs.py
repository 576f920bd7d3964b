#!/usr/bin/env python3
"""Prints the real paragraphs that tokenizer tests read, as JSON lines {"file", "index", "text"}.

The rule (also in docs/development.md), on bytes, so that any language can repeat it:
  1. files ending in .txt, sorted by the bytes of their path relative to the corpus folder;
  2. each file is split at "\\n"; a line of only spaces and tabs is blank; consecutive lines that are
     not blank, joined with "\\n", are a block;
  3. spaces, tabs and newlines are cut from both ends of a block; blocks below 20 bytes are dropped;
  4. the blocks left are numbered from 0 over all files; a block is a paragraph when its number is a
     multiple of 22 or when it holds a byte above 0x7F, which nearly all foreign text has.
Every 22nd block gives about 1,900 paragraphs that touch most files; the second half of the rule adds
all text that is not plain English.
"""

import argparse
import json
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "scripts"))
import fetch_data  # noqa: E402  (needs the path above)

MIN_BYTES = 20
STRIDE = 22
BLANKS = b" \t\n"


def blocks_of(data):
    """Yields the blocks of one file's bytes (steps 2 and 3)."""
    lines = []
    for line in data.split(b"\n") + [b""]:
        if line.strip(b" \t"):
            lines.append(line)
            continue
        block = b"\n".join(lines).strip(BLANKS)
        lines = []
        if len(block) >= MIN_BYTES:
            yield block


def paragraphs_of(folder):
    """Yields (file, index, text) for the corpus in `folder`; `index` counts all blocks."""
    files = [path.relative_to(folder) for path in pathlib.Path(folder).rglob("*.txt")]
    index = 0
    for file in sorted(files, key=os.fsencode):
        for block in blocks_of((pathlib.Path(folder) / file).read_bytes()):
            if index % STRIDE == 0 or any(byte > 0x7F for byte in block):
                yield str(file), index, block.decode("utf-8")
            index += 1


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=pathlib.Path,
                        default=fetch_data.cache_folder() / "corpus" / "django-docs",
                        help="the corpus (default: %(default)s)")
    parser.add_argument("--count", action="store_true", help="print only how many there are")
    options = parser.parse_args()
    if not options.folder.is_dir():
        print(f"{options.folder}: no such folder; run scripts/setup --corpus", file=sys.stderr)
        return 2
    if options.count:
        print(sum(1 for _ in paragraphs_of(options.folder)))
        return 0
    for file, index, text in paragraphs_of(options.folder):
        print(json.dumps({"file": file, "index": index, "text": text}, ensure_ascii=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
