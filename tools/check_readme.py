#!/usr/bin/env python3
"""Runs the commands that a Markdown file shows, so that what it promises stays true.

A block opened by ```sh run is run with bash, stopping at the first failing command; other blocks are
only read by people. All blocks of a file run in one empty folder, one after the other, with the built
stof first on PATH.
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile

OPENING = re.compile(r"^```sh run\s*$")
CLOSING = re.compile(r"^```\s*$")
TIMEOUT_S = 300


def runnable_blocks(text):
    """Yields (line number of the first command, commands) for each runnable block."""
    first, lines = None, []
    for number, line in enumerate(text.splitlines(), 1):
        if first is None:
            if OPENING.match(line):
                first, lines = number + 1, []
        elif CLOSING.match(line):
            yield first, "\n".join(lines) + "\n"
            first = None
        else:
            lines.append(line)
    if first is not None:
        raise ValueError(f"line {first - 1}: the block is never closed")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=pathlib.Path, help="the Markdown file")
    parser.add_argument("--stof", type=pathlib.Path, required=True, help="the built program")
    options = parser.parse_args()
    program = options.stof.resolve()
    if not os.access(program, os.X_OK):
        parser.error(f"--stof {program}: no such program")
    try:
        blocks = list(runnable_blocks(options.file.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        print(f"{options.file}: {error}", file=sys.stderr)
        return 2
    if not blocks:
        print(f"{options.file}: no ```sh run blocks, so nothing would be checked", file=sys.stderr)
        return 2
    environment = {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}"}
    with tempfile.TemporaryDirectory() as folder:
        for line, commands in blocks:
            print(f"{options.file}:{line}:\n{commands}", flush=True)
            result = subprocess.run(["bash", "-euo", "pipefail", "-c", commands], cwd=folder, env=environment,
                                    stdin=subprocess.DEVNULL, timeout=TIMEOUT_S, check=False)
            if result.returncode != 0:
                print(f"{options.file}:{line}: exited {result.returncode}; a reader would see the same",
                      file=sys.stderr)
                return 1
    print(f"{options.file}: {len(blocks)} blocks ran")
    return 0


if __name__ == "__main__":
    sys.exit(main())
