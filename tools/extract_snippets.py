#!/usr/bin/env python3
"""Makes one C++ file of the ```cpp blocks of Markdown files, so that a compiler can say whether they hold.

Each block becomes the body of a function of its own. What a snippet leaves to its reader are the
function's parameters: views q, k, v and out. Its #include lines go to the top of the file; errors are
reported at the Markdown file's own lines.

A ```c block is a program of its own: --c-out is a folder for c_example_1.c and so on, and exactly --c-programs of
them are expected.
"""

import argparse
import pathlib
import sys

PARAMETERS = "[[maybe_unused]] stof::TensorView q, [[maybe_unused]] stof::TensorView k, " \
    "[[maybe_unused]] stof::TensorView v, [[maybe_unused]] stof::MutableTensorView out"


def blocks_of(language, text):
    """Yields (line number of the first line inside, lines) for each block of the language."""
    first, lines = None, []
    for number, line in enumerate(text.splitlines(), 1):
        if first is None:
            if line.rstrip() == "```" + language:
                first, lines = number + 1, []
        elif line.rstrip() == "```":
            yield first, lines
            first = None
        else:
            lines.append(line)
    if first is not None:
        raise ValueError(f"line {first - 1}: the block is never closed")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", type=pathlib.Path, nargs="+", help="Markdown files")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="the C++ file to write")
    parser.add_argument("--c-out", type=pathlib.Path, required=True, help="the folder of C files to write")
    parser.add_argument("--c-programs", type=int, required=True, help="how many C files there are")
    options = parser.parse_args()
    programs = []
    includes, functions = ["#include <stof/mask.h>", "#include <stof/tensor.h>"], []
    for file in options.files:
        try:
            text = file.read_text(encoding="utf-8")
            blocks = list(blocks_of("cpp", text))
            programs += [[f'#line {first} "{file}"', *lines] for first, lines in blocks_of("c", text)]
        except (OSError, ValueError) as error:
            print(f"{file}: {error}", file=sys.stderr)
            return 2
        for first, lines in blocks:
            includes += [line for line in lines if line.startswith("#include")]
            body = ["" if line.startswith("#include") else line for line in lines]
            number = sum(line.startswith("void snippet_") for line in functions)
            functions += [f"void snippet_{number}({PARAMETERS}) {{", f'#line {first} "{file}"',
                          *body, "}"]
    if not functions:
        print("no ```cpp blocks, so nothing would be compiled", file=sys.stderr)
        return 2
    if len(programs) != options.c_programs:
        print(f"expected {options.c_programs} ```c blocks, got {len(programs)}", file=sys.stderr)
        return 2
    for number, lines in enumerate(programs, 1):
        (options.c_out / f"c_example_{number}.c").write_text("\n".join(lines) + "\n", encoding="utf-8")
    options.out.write_text("\n".join(includes + functions) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
