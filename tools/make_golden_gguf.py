#!/usr/bin/env python3
"""Writes tests/data/gguf_golden.gguf, a GGUF file with one small tensor of every type stof reads, and
tests/data/gguf_golden.safetensors, the same tensors dequantised with numpy in float64 (rounded to
float32): an implementation of its own, on whole arrays instead of block by block.

    pip install numpy safetensors && tools/make_golden_gguf.py
"""
import pathlib
import struct

import numpy as np
from safetensors.numpy import save_file

DATA = pathlib.Path(__file__).resolve().parent.parent / "tests" / "data"
ALIGNMENT = 64  # not the default, so that the field is read


def halves(raw, at):
    """float16 at byte `at` of every block: [blocks, 1]"""
    return raw[:, at:at + 2].copy().view("<f2").astype(np.float64)


def nibbles(raw):
    """[blocks, n] bytes -> [blocks, 2 n]: all low halves, then all high ones"""
    return np.concatenate([raw & 15, raw >> 4], axis=1).astype(np.int64)


def fifth_bits(raw):
    """[blocks, 4] bytes -> [blocks, 32]"""
    return np.unpackbits(raw, axis=1, bitorder="little").astype(np.int64)


def q4_0(b):
    return halves(b, 0) * (nibbles(b[:, 2:]) - 8)


def q4_1(b):
    return halves(b, 0) * nibbles(b[:, 4:]) + halves(b, 2)


def q5_0(b):
    return halves(b, 0) * (nibbles(b[:, 6:]) + 16 * fifth_bits(b[:, 2:6]) - 16)


def q5_1(b):
    return halves(b, 0) * (nibbles(b[:, 8:]) + 16 * fifth_bits(b[:, 4:8])) + halves(b, 2)


def q8_0(b):
    return halves(b, 0) * b[:, 2:].view(np.int8)


def k_scales(packed):
    """12 bytes -> 8 scales, 8 minima of 6 bits"""
    first, second, rest = packed[:, 0:4], packed[:, 4:8], packed[:, 8:12]
    scales = np.concatenate([first & 63, (rest & 15) | (first >> 6 << 4)], axis=1)
    minima = np.concatenate([second & 63, (rest >> 4) | (second >> 6 << 4)], axis=1)
    return scales.astype(np.float64), minima.astype(np.float64)


def k_codes(codes):
    """128 bytes -> [blocks, 8, 32]"""
    groups = codes.reshape(len(codes), 4, 1, 32)
    return np.concatenate([groups & 15, groups >> 4], axis=2).reshape(len(codes), 8, 32).astype(np.int64)


def k_values(b, codes):
    scales, minima = k_scales(b[:, 4:16])
    values = (halves(b, 0) * scales)[:, :, None] * codes - (halves(b, 2) * minima)[:, :, None]
    return values.reshape(len(b), 256)


def q4_k(b):
    return k_values(b, k_codes(b[:, 16:]))


def q5_k(b):
    fifth = np.stack([b[:, 16:48] >> j & 1 for j in range(8)], axis=1).astype(np.int64)
    return k_values(b, k_codes(b[:, 48:]) + 16 * fifth)


def q6_k(b):
    low, high = b[:, :128].reshape(-1, 2, 64), b[:, 128:192].reshape(-1, 2, 1, 32)
    low = np.concatenate([low & 15, low >> 4], axis=2).reshape(-1, 2, 4, 32).astype(np.int64)
    high = np.concatenate([high >> shift & 3 for shift in (0, 2, 4, 6)], axis=2).astype(np.int64)
    codes = (low + 16 * high - 32).reshape(-1, 16, 16)
    scales = b[:, 192:208].view(np.int8).astype(np.float64)
    return (halves(b, 208)[:, :, None] * scales[:, :, None] * codes).reshape(-1, 256)


# name: (number, elements of a block, bytes of a block, bytes where halves stand, function)
QUANTISED = {
    "Q4_0": (2, 32, 18, [0], q4_0), "Q4_1": (3, 32, 20, [0, 2], q4_1), "Q5_0": (6, 32, 22, [0], q5_0),
    "Q5_1": (7, 32, 24, [0, 2], q5_1), "Q8_0": (8, 32, 34, [0], q8_0), "Q4_K": (12, 256, 144, [0, 2], q4_k),
    "Q5_K": (13, 256, 176, [0, 2], q5_k), "Q6_K": (14, 256, 210, [208], q6_k),
}


def text(value):
    return struct.pack("<Q", len(value.encode())) + value.encode()


def value_of(kind, value):
    formats = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
    if kind == 8:
        return text(value)
    if kind == 9:
        element, items = value
        return struct.pack("<IQ", element, len(items)) + b"".join(value_of(element, item) for item in items)
    return struct.pack("<" + formats[kind], value)


METADATA = [
    ("general.architecture", 8, "golden"), ("general.alignment", 4, ALIGNMENT),
    ("g.u8", 0, 200), ("g.i8", 1, -100), ("g.u16", 2, 60000), ("g.i16", 3, -30000), ("g.i32", 5, -2**31),
    ("g.u64", 10, 2**62), ("g.i64", 11, -2**62), ("g.f32", 6, 0.5), ("g.f64", 12, 0.1), ("g.bool", 7, True),
    ("g.strings", 9, (8, ["a", "", "Ġthe"])), ("g.integers", 9, (5, [1, -2])), ("g.floats", 9, (6, [0.25, -2.0])),
    ("g.booleans", 9, (7, [True, False])),
]


def tensors():
    """Yields name, number, shape in row-major order, bytes, values."""
    rng = np.random.default_rng(20)
    plain = rng.standard_normal((2, 3, 4)).astype(np.float32)
    yield "F32", 0, plain.shape, plain.tobytes(), plain
    yield "F16", 1, plain.shape, plain.astype("<f2").tobytes(), plain.astype("<f2").astype(np.float32)
    upper = plain.view("<u4") >> 16
    yield "BF16", 30, plain.shape, upper.astype("<u2").tobytes(), (upper << 16).astype("<u4").view("<f4")
    for name, (number, elements, size, where, function) in QUANTISED.items():
        columns = 256 if elements == 256 else 64
        blocks = rng.integers(0, 256, (2 * columns // elements, size), dtype=np.uint8)
        for at in where:
            scale = rng.uniform(-0.1, 0.1, (len(blocks), 1)).astype("<f2")
            blocks[:, at:at + 2] = scale.view(np.uint8)
        values = function(blocks).reshape(2, columns).astype(np.float32)
        yield name, number, values.shape, blocks.tobytes(), values


def main():
    header = b"".join(text(key) + struct.pack("<I", kind) + value_of(kind, value) for key, kind, value in METADATA)
    infos, data, golden = b"", b"", {}
    for name, number, shape, raw, values in tensors():
        data += bytes(-len(data) % ALIGNMENT)
        infos += text(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *reversed(shape))
        infos += struct.pack("<IQ", number, len(data))
        data += raw
        golden[name] = np.ascontiguousarray(values)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(golden), len(METADATA)) + header + infos
    (DATA / "gguf_golden.gguf").write_bytes(head + bytes(-len(head) % ALIGNMENT) + data)
    save_file(golden, DATA / "gguf_golden.safetensors")


if __name__ == "__main__":
    main()
