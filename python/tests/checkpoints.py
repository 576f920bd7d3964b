"""The small checkpoints of tests/data as folders, with what transformers computed of them in
float64."""

from __future__ import annotations

import functools
import json
import struct
from pathlib import Path

import numpy as np

DATA = Path(__file__).resolve().parents[2] / "tests/data"


class Golden:
    """NAME_golden.json and NAME_golden.safetensors."""

    def __init__(self, name):
        self.json = json.loads((DATA / f"{name}_golden.json").read_text(encoding="utf-8"))
        raw = (DATA / f"{name}_golden.safetensors").read_bytes()
        (size,) = struct.unpack_from("<Q", raw)
        header = json.loads(raw[8 : 8 + size])
        self.tensors = {}
        for key, entry in header.items():
            if key != "__metadata__":
                begin, end = (8 + size + offset for offset in entry["data_offsets"])
                values = np.frombuffer(raw[begin:end], "<f4")
                self.tensors[key] = values.reshape(entry["shape"])

    def case(self, name):
        return next(case for case in self.json["cases"] if case["name"] == name)

    def cut(self, name, shape):
        """The leading part of a weight, which cases share."""
        return self.tensors[name][tuple(slice(extent) for extent in shape)]


golden = functools.lru_cache(maxsize=None)(Golden)


def golden_json(file):
    return json.loads((DATA / file).read_text(encoding="utf-8"))


def save(folder, tensors):
    """model.safetensors of float32 arrays."""
    header, data = {}, b""
    for name, array in tensors.items():
        raw = np.ascontiguousarray(array, "<f4").tobytes()
        header[name] = dict(
            dtype="F32", shape=list(array.shape), data_offsets=[len(data), len(data) + len(raw)]
        )
        data += raw
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)


def write(folder, name, content):
    (folder / name).write_text(json.dumps(content), encoding="utf-8")


def encoder(folder, name="bert", **config):
    """A folder of that case; `config` changes fields of config.json."""
    of = golden("encoders")
    case = of.case(name)
    weights = {}
    for tensor, role in of.json["tensors"][case["config"]["model_type"]].items():
        if tensor not in case["absent"]:
            stored = of.tensors[f"weight.{role}"]
            weights[tensor] = of.cut(f"weight.{role}", case["shapes"].get(tensor, stored.shape))
    save(folder, weights)
    write(folder, "config.json", {**case["config"], **config})
    for file, content in of.json["tokenizers"][case["tokenizer"]]["files"].items():
        write(folder, file, content)
    return folder


def tiny_tokenizer():
    """Byte-level BPE without merges: letters, space, and "</s>" as token 49."""
    letters = [chr(ord("a") + i) for i in range(26)] + ["\u0120"]
    letters += [chr(ord("A") + i) for i in range(22)]
    vocab = {letter: i for i, letter in enumerate(letters)}
    vocab["</s>"] = 49
    return dict(
        model=dict(type="BPE", vocab=vocab, merges=[]),
        pre_tokenizer=dict(type="ByteLevel", add_prefix_space=False),
        decoder=dict(type="ByteLevel"),
        added_tokens=[dict(id=49, content="</s>", special=True)],
    )


def generator(folder, name="base", of="llama", **config):
    case = golden(of).case(name)
    save(
        folder,
        {key: golden(of).cut(f"weight.{key}", shape) for key, shape in case["tensors"].items()},
    )
    write(folder, "config.json", {**case["config"], **config})
    write(folder, "tokenizer.json", tiny_tokenizer())
    return folder


def tiny_unigram():
    """A unigram model of letters with T5's special tokens: 40 in all."""
    special = ["<pad>", "</s>", "<unk>"]
    letters = [chr(ord("a") + i) for i in range(26)] + [chr(ord("A") + i) for i in range(10)]
    pieces = [[token, 0.0] for token in special] + [["\u2581", -2.0]] + [[x, -4.0] for x in letters]
    space = dict(type="Metaspace", replacement="\u2581", prepend_scheme="always", split=True)
    end = dict(id="</s>", ids=[1], tokens=["</s>"])
    return dict(
        added_tokens=[dict(id=i, content=token, special=True) for i, token in enumerate(special)],
        pre_tokenizer=space,
        decoder=space,
        post_processor=dict(
            type="TemplateProcessing",
            single=[
                dict(Sequence=dict(id="A", type_id=0)),
                dict(SpecialToken=dict(id="</s>", type_id=0)),
            ],
            special_tokens={"</s>": end},
        ),
        model=dict(type="Unigram", unk_id=2, vocab=pieces),
    )


def seq2seq(folder, name="gated-gelu", **config):
    of = golden("t5")
    case = of.case(name)
    save(
        folder, {key: of.cut(f"weight.{key}", shape) for key, shape in case["tensors"].items()}
    )
    write(folder, "config.json", {**case["config"], **config})
    write(folder, "tokenizer.json", tiny_unigram())
    return folder


def classifier(folder, name="base"):
    of = golden("vit")
    case = of.case(name)
    save(
        folder, {key: of.cut(f"weight.{key}", shape) for key, shape in case["tensors"].items()}
    )
    write(folder, "config.json", case["config"])
    write(folder, "preprocessor_config.json", case["processor"])
    return folder


def image(name):
    return DATA / name


def relative_error(found, expected):
    """Largest difference over the largest value."""
    assert found.dtype == np.float32 and found.shape == expected.shape
    return np.abs(found.astype("f8") - expected).max() / np.abs(expected).max()
