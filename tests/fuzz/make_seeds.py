#!/usr/bin/env python3
"""Writes the seed files of the binary formats and of SentencePiece's into tests/fuzz/corpus.

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


def text(value):
    return struct.pack("<Q", len(value)) + value


def gguf(values, tensors, data=b"", version=3, alignment=32):
    """values: (key, type number, bytes); tensors: (name, extents, type number, offset)"""
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(values))
    for key, kind, raw in values:
        head += text(key) + struct.pack("<I", kind) + raw
    for name, extents, kind, offset in tensors:
        head += text(name) + struct.pack("<I%dQIQ" % len(extents), len(extents), *extents, kind, offset)
    return head + bytes(-len(head) % alignment) + data


GGUF_BLOCKS = [(2, 32, 18), (3, 32, 20), (6, 32, 22), (7, 32, 24), (8, 32, 34), (12, 256, 144), (13, 256, 176),
               (14, 256, 210), (0, 1, 4), (1, 1, 2), (30, 1, 2)]


def gguf_every_type():
    tensors, data = [], b""
    for number, elements, size in GGUF_BLOCKS:
        tensors.append((b"t%d" % number, [elements], number, len(data)))
        data += bytes(range(size)) + bytes(-size % 32)
    return gguf([], tensors, data)


def field(number, value):
    """Of a message of protocol buffers; a negative float has its sign bit in the last byte."""
    if isinstance(value, int):
        return bytes([number << 3 & 0x7F | (0x80 if number > 15 else 0)]) + (bytes([number >> 4]) if number > 15 else b"") \
            + bytes([value])
    if isinstance(value, float):
        return bytes([number << 3 | 5]) + struct.pack("<f", value)
    return bytes([number << 3 | 2, len(value)]) + value


def spiece(pieces, model_type, **trainer):
    """pieces: (text, score, type)"""
    message = b"".join(field(1, field(1, text.encode()) + field(2, score) + field(3, kind)) for text, score, kind in pieces)
    fields = field(3, model_type) + b"".join(field(trainer_fields[name], value) for name, value in trainer.items())
    return message + field(2, fields) + field(3, field(3, 1) + field(4, 1))


trainer_fields = {"byte_fallback": 35, "unk_id": 40}
MARK = "\u2581"
PIECES = [("<unk>", 0.0, 2), ("<s>", 0.0, 3), ("</s>", 0.0, 3), ("<u>", 0.0, 4), (MARK, -1.0, 1), ("a", -2.0, 1),
          ("b", -2.5, 1), (MARK + "a", -3.0, 1), ("ab", -3.5, 1), (MARK + "ab", -4.0, 1)]
BYTES = [(f"<0x{byte:02X}>", 0.0, 6) for byte in range(256)]


def tokenizer_json(model, **parts):
    added = [{"id": i, "content": text, "special": True} for i, (text, _, kind) in enumerate(PIECES) if kind == 3]
    whole = {"added_tokens": added, "normalizer": None, "pre_tokenizer": None, "post_processor": None, **parts, "model": model}
    return json.dumps(whole, separators=(",", ":")).encode() + b"\0ab <s>a\xc3\xa9 b"


SUBWORD_SEEDS = {
    "unigram": tokenizer_json({"type": "Unigram", "unk_id": 0, "vocab": [[text, score] for text, score, _ in PIECES]},
                              normalizer={"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": MARK},
                              pre_tokenizer={"type": "Metaspace", "replacement": MARK, "prepend_scheme": "always"},
                              decoder={"type": "Metaspace", "replacement": MARK, "prepend_scheme": "always"}),
    "metaspace_bpe": tokenizer_json(
        {"type": "BPE", "unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True,
         "vocab": {text: i for i, (text, _, _) in enumerate(PIECES + BYTES)}, "merges": [[MARK, "a"], ["a", "b"], [MARK, "ab"]]},
        normalizer={"type": "Prepend", "prepend": MARK},
        decoder={"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}]}),
    "spiece_unigram": spiece(PIECES, 1) + b"\0ab  <s>a <u>\xc3\xa9 b",
    "spiece_bpe": spiece(PIECES, 2) + b"\0ab  <s>a <u>\xc3\xa9 b",
    "spiece_bytes": spiece(PIECES + BYTES, 2, byte_fallback=1) + b"\0ab\xc3\xa9",
}

SEEDS = {
    "bpe_fuzz": SUBWORD_SEEDS,
    "gguf_fuzz": {
        "every_type": gguf_every_type(),
        "metadata": gguf([(b"s", 8, text(b"value")), (b"b", 7, b"\1"), (b"u", 10, bytes(8)), (b"f", 6, bytes(4)),
                          (b"strings", 9, struct.pack("<IQ", 8, 2) + text(b"a") + text(b"")),
                          (b"numbers", 9, struct.pack("<IQ", 5, 3) + bytes(12))], []),
        "alignment": gguf([(b"general.alignment", 4, struct.pack("<I", 8))], [(b"a", [2, 3], 0, 0), (b"b", [1], 0, 24)],
                          bytes(28), alignment=8),
        "version_2": gguf([], [(b"a", [1], 0, 0)], bytes(4), version=2),
        "huge_array": gguf([(b"k", 9, struct.pack("<IQ", 8, 2**60))], []),
        "huge_shape": gguf([], [(b"a", [2**40, 2**20], 0, 0)], bytes(4)),
        "overlap": gguf([], [(b"a", [16], 0, 0), (b"b", [16], 0, 32)], bytes(96)),
    },
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
