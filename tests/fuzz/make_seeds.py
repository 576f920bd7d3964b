#!/usr/bin/env python3
"""Writes the seed files of the binary formats into tests/fuzz/corpus.

Usage: tests/fuzz/make_seeds.py [CORPUS_FOLDER]

Running it again gives the same files. Needs only Python.
"""

import json
import pathlib
import struct
import sys


def safetensors(header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header, separators=(",", ":")).encode()
    return struct.pack("<Q", len(text)) + text + data


def entry(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def npy(descr, shape, data, version=1, fortran="False"):
    text = "{'descr': %s, 'fortran_order': %s, 'shape': %s, }" % (descr, fortran, shape)
    length_bytes = 2 if version == 1 else 4
    padding = -(6 + 2 + length_bytes + len(text) + 1) % 64
    text = (text + " " * padding + "\n").encode()
    length = struct.pack("<H" if version == 1 else "<I", len(text))
    return b"\x93NUMPY" + bytes([version, 0]) + length + text + data


SIZES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1, "F8_E5M2": 1, "I64": 8, "I32": 4,
         "I16": 2, "I8": 1, "U64": 8, "U32": 4, "U16": 2, "U8": 1, "BOOL": 1}


def every_dtype():
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for dtype, size in SIZES.items():
        header["t." + dtype] = entry(dtype, [1, 2], offset, offset + 2 * size)
        offset += 2 * size
    return safetensors(header, bytes(i % 2 for i in range(offset)))


SEEDS = {
    "safetensors_fuzz": {
        "empty": safetensors({}),
        "every_dtype": every_dtype(),
        "scalar_and_empty": safetensors(
            {"s": entry("F32", [], 0, 4), "e": entry("F32", [0, 3], 4, 4)}, b"\0\0\x80\x3f"),
        "overlap": safetensors({"a": entry("U8", [4], 0, 4), "b": entry("U8", [4], 2, 6)}, bytes(6)),
        "gap": safetensors({"a": entry("U8", [2], 0, 2), "b": entry("U8", [2], 4, 6)}, bytes(6)),
        "twice": safetensors(b'{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},'
                             b'"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}'),
        "huge_shape": safetensors({"a": entry("F32", [2**62, 4], 0, 0)}),
        "padded": safetensors(b'{"\\u00e9\\n":{"dtype":"I8","shape":[1],"data_offsets":[0,1]}}   ', b"\x7f"),
    },
    "npy_fuzz": {
        "float32": npy("'<f4'", "(2, 3)", bytes(24)),
        "float16_fortran": npy("'<f2'", "(3, 2)", bytes(range(12)), fortran="True"),
        "bool_v2": npy("'|b1'", "(3,)", b"\0\1\0", version=2),
        "int64_v3": npy("'<i8'", "()", bytes(8), version=3),
        "uint8_empty": npy("'|u1'", "(0, 4)", b""),
        "big_endian": npy("'>f4'", "(1,)", bytes(4)),
        "structured": npy("[('x', '<f4')]", "(1,)", bytes(4)),
        "huge_shape": npy("'<f8'", "(4611686018427387904, 8)", b""),
    },
}


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent / "corpus")
    for target, seeds in SEEDS.items():
        (folder / target).mkdir(parents=True, exist_ok=True)
        for name, content in seeds.items():
            (folder / target / name).write_bytes(content)


if __name__ == "__main__":
    main()
