#!/usr/bin/env python3
"""Runs the commands that Markdown files show, so that what they promise stays true.

A block opened by ```sh run is run with bash, stopping at the first failing command. In a block opened
by ```console run each line that begins with "$ " is run likewise, and what it prints must be what the
lines below it show; durations, which differ from run to run, may differ. Other blocks are only read by
people; one that shows a stof command is an error, since nothing would keep it true. All blocks of a file
run in one empty folder, one after the other, with the built stof first on PATH.
"""

import argparse
import difflib
import os
import pathlib
import re
import subprocess
import sys
import tempfile

OPENING = re.compile(r"^```([^`]*)$")
RUNNABLE = {"sh run": "sh", "console run": "console"}
STOF_COMMAND = re.compile(r"(\$ )?stof\s")
CLOSING = re.compile(r"^```\s*$")
DURATION = re.compile(r"\b[\d.]+ (us|ms|s)\b")
TIMEOUT_S = 300


def runnable_blocks(text):
    """Yields (kind, line number of the first line inside, lines) for each runnable block."""
    kind, first, lines = None, 0, []
    for number, line in enumerate(text.splitlines(), 1):
        if kind is None:
            if opening := OPENING.match(line):
                kind, first, lines = opening.group(1).strip(), number + 1, []
        elif CLOSING.match(line):
            if kind in RUNNABLE:
                yield RUNNABLE[kind], first, lines
            elif any(STOF_COMMAND.match(shown) for shown in lines):
                raise ValueError(f"line {first - 1}: shows a stof command in a block that is not run; "
                                 "open it with ```sh run or ```console run")
            kind = None
        else:
            lines.append(line)
    if kind is not None:
        raise ValueError(f"line {first - 1}: the block is never closed")


def shown_runs(lines):
    """Yields (index of the command's line, command, lines it should print) of a console block."""
    starts = [i for i, line in enumerate(lines) if line.startswith("$ ")]
    if not starts or starts[0] != 0:
        raise ValueError('a console block begins with "$ " and a command')
    for start, end in zip(starts, starts[1:] + [len(lines)]):
        expected = lines[start + 1:end]
        while expected and not expected[-1]:
            expected.pop()  # the blank line before the next command
        yield start, lines[start][2:], expected


def without_durations(lines):
    return [DURATION.sub("TIME", line).rstrip() for line in lines]


class Runner:
    """Runs commands in one folder, with the built program first on PATH."""

    def __init__(self, folder, program):
        self.folder = folder
        # With a GPU stof would take it and say so; what is shown is what every machine prints.
        self.environment = {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}",
                            "CUDA_VISIBLE_DEVICES": ""}

    def run(self, commands, **streams):
        return subprocess.run(["bash", "-euo", "pipefail", "-c", commands], cwd=self.folder,
                              env=self.environment, stdin=subprocess.DEVNULL, timeout=TIMEOUT_S,
                              check=False, **streams)


def check_block(runner, file, kind, first, lines):
    """None, or what a reader would see go wrong."""
    if kind == "sh":
        commands = "\n".join(lines) + "\n"
        print(f"{file}:{first}:\n{commands}", flush=True)
        code = runner.run(commands).returncode
        return f"{file}:{first}: exited {code}; a reader would see the same" if code else None
    for index, command, expected in shown_runs(lines):
        where = f"{file}:{first + index}"
        print(f"{where}:\n{command}", flush=True)
        result = runner.run(command, stdout=subprocess.PIPE, encoding="utf-8")
        if result.returncode != 0:
            return f"{where}: exited {result.returncode}; a reader would see the same"
        got = result.stdout.rstrip("\n").splitlines()
        if without_durations(got) != without_durations(expected):
            difference = "\n".join(difflib.unified_diff(expected, got, "shown", "printed", lineterm=""))
            return f"{where}: prints something else than is shown\n{difference}"
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", type=pathlib.Path, nargs="+", help="Markdown files")
    parser.add_argument("--stof", type=pathlib.Path, required=True, help="the built program")
    options = parser.parse_args()
    program = options.stof.resolve()
    if not os.access(program, os.X_OK):
        parser.error(f"--stof {program}: no such program")
    num_blocks = 0
    for file in options.files:
        try:
            blocks = list(runnable_blocks(file.read_text(encoding="utf-8")))
            with tempfile.TemporaryDirectory() as folder:
                runner = Runner(folder, program)
                for kind, first, lines in blocks:
                    if problem := check_block(runner, file, kind, first, lines):
                        print(problem, file=sys.stderr)
                        return 1
        except (OSError, ValueError) as error:
            print(f"{file}: {error}", file=sys.stderr)
            return 2
        num_blocks += len(blocks)
    if num_blocks == 0:
        print("no blocks marked \"run\", so nothing would be checked", file=sys.stderr)
        return 2
    print(f"{num_blocks} blocks ran")
    return 0


if __name__ == "__main__":
    sys.exit(main())
