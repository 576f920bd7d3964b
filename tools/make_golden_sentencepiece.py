#!/usr/bin/env python3
"""Trains small SentencePiece models on the paragraphs of tools/corpus_paragraphs.py and writes what the
original tokenizers make of real and of nasty text, for the tests of stof's own: `sentencepiece` itself for
the .model files, the Hugging Face `tokenizers` library for tokenizer.json files made of the same vocabularies.

  tests/data/spm_unigram.model, spm_bpe.model  T5's and LLaMA's kind (a part of NFKC; identity with byte fallback)
  tests/data/spm_variants.json  tokenizer.json files less their vocabularies, and tokenizers' ids and text of
                                the strings below: each variant differs in a setting that changes them
  tests/data/spm_corpus.txt     one line per paragraph: its index, the number of ids of all kinds of
                                CORPUS_KINDS, 64-bit FNV-1a over them (int32, little endian)
  tests/data/spm_nasty.json     the same for strings of wordpiece_nasty.json (by name) and of NASTY below,
                                and FNV-1a over the text that each kind decodes

    scripts/setup --corpus && pip install sentencepiece protobuf tokenizers && tools/make_golden_sentencepiece.py
"""
import base64
import json
import pathlib
import re
import sys
import tempfile
import unicodedata

import sentencepiece
from sentencepiece import sentencepiece_model_pb2 as spm_pb2
from tokenizers import Tokenizer

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "scripts")]
import corpus_paragraphs  # noqa: E402
from make_golden_bpe import CORPUS, NASTY as BPE_NASTY, ids_bytes  # noqa: E402
from make_golden_wordpiece import NASTY as SHARED_NASTY, fnv1a  # noqa: E402

DATA = ROOT / "tests" / "data"
MARK = "\u2581"
NASTY = {
    "spaces before words": BPE_NASTY["spaces before words"],
    "spaces at ends": BPE_NASTY["spaces at ends"],
    "newlines": BPE_NASTY["newlines"],
    "rare bytes": BPE_NASTY["rare bytes"],
    "marks": f"a{MARK}b {MARK}c{MARK}{MARK} d{MARK}",
    "special tokens": "<s>a</s> b <unk> <pad></s></s>c <user> <user>x<user> <usr",
    "byte tokens as text": "<0x0A> <0x41><0xE2><0x80>",
    "NFKC": "\ufb01ne \u2460 \uff21\uff42 \u212b \u1e9b\u0323 \u3131 \u00bd \u2126 \u33a2 \u2075",
    "combining marks": "e\u0301 a\u0308\u0301 o\u0302\u0323 \u0915\u094d\u0937 \u1100\u1161\u11a8 \u0e01\u0e33 x\u20dd",
    "controls": "a\u0001b\u0002 \u200b\u200d\ufeff\u00adc \x7f\x85d\r\ne\rf\tg",
    "joined emoji": "\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea\U0001f1eb \U0001f44d\U0001f3fd",
    "runs": "=" * 37 + " " + "-" * 41 + " " + "." * 19 + " " + "ab" * 50,
    "1,000 spaces": "a" + " " * 1000 + "b",
    "2,000 letters": "abcdefghij" * 200,
}


# Code points that are normalised; all of NFKC would make a model of 250 KB.
NORMALIZED = [(0xA0, 0x180), (0x1E00, 0x1F00), (0x2000, 0x2230), (0x2460, 0x24A0), (0x3130, 0x3190), (0x33A0, 0x33C0),
              (0xFB00, 0xFB07), (0xFF01, 0xFF60)]


def normalization_rules():
    """Lines of `normalization_rule_tsv`: code points and what they become, in hexadecimal."""
    rules = {c: "" for c in (*map(chr, range(1, 9)), "\u007f", "\u00ad", "\ufeff")}
    rules |= {c: " " for c in "\t\n\r\u200b\u2028"}
    for begin, end in NORMALIZED:
        for c in map(chr, range(begin, end)):
            for source in {c, unicodedata.normalize("NFD", c)}:
                target = unicodedata.normalize("NFKC", c)
                if source != target:
                    rules.setdefault(source, target)

    def hexadecimal(text):
        return " ".join(f"{ord(c):X}" for c in text)
    return "".join(f"{hexadecimal(source)}\t{hexadecimal(target)}\n" for source, target in sorted(rules.items()))


def train(name, sentences, **settings):
    with tempfile.TemporaryDirectory() as folder:
        if settings.pop("own_rules", False):
            rules = pathlib.Path(folder) / "rules.tsv"
            rules.write_text(normalization_rules())
            settings["normalization_rule_tsv"] = str(rules)
        prefix = pathlib.Path(folder) / name
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(sentences), model_prefix=str(prefix),
                                                 num_threads=1, minloglevel=2, **settings)
        proto = spm_pb2.ModelProto.FromString(pathlib.Path(f"{prefix}.model").read_bytes())
    for field in ("model_prefix", "self_test_sample_size"):
        proto.trainer_spec.ClearField(field)
    proto.normalizer_spec.ClearField("normalization_rule_tsv")
    (DATA / f"spm_{name}.model").write_bytes(proto.SerializeToString(deterministic=True))
    return proto


def added(content, id, **on):
    flags = dict(single_word=False, lstrip=False, rstrip=False, normalized=False, special=True)
    return {"id": id, "content": content, **flags, **on}


def template(before=(), after=()):
    def token(name):
        return {"SpecialToken": {"id": name, "type_id": 0}}
    sequence = [{"Sequence": {"id": "A", "type_id": 0}}]
    ids = {"<s>": 1, "</s>": 2} if before else {"</s>": 1}
    return {"type": "TemplateProcessing", "single": [*map(token, before), *sequence, *map(token, after)],
            "pair": sequence, "special_tokens": {name: {"id": name, "ids": [ids[name]], "tokens": [name]}
                                                 for name in (*before, *after)}}


def merges_of(proto):
    """As transformers makes them: of every token its parts, the likeliest tokens first."""
    ids = {p.piece: i for i, p in enumerate(proto.pieces)}
    merges = []
    for piece in proto.pieces:
        if piece.type != 1:
            continue
        parts = [(piece.piece[:i], piece.piece[i:]) for i in range(1, len(piece.piece))]
        parts = [(a, b) for a, b in parts if a in ids and b in ids]
        parts.sort(key=lambda pair: (ids[pair[0]], ids[pair[1]]))
        merges += [(piece.score, a, b) for a, b in parts]
    merges.sort(key=lambda merge: -merge[0])
    return [[a, b] for _, a, b in merges]


def metaspace(scheme, split=True):
    return {"type": "Metaspace", "replacement": MARK, "prepend_scheme": scheme, "split": split}


def sequence(kind, *steps):
    name = {"normalizers": "normalizers", "pretokenizers": "pretokenizers", "decoders": "decoders"}[kind]
    return {"type": "Sequence", name: list(steps)}


PRECOMPILED = {"type": "Precompiled", "precompiled_charsmap": None}  # filled in from the model
BLANKS = {"type": "Replace", "pattern": {"String": " "}, "content": MARK}
RUNS = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": MARK}
WORDS = {"type": "WhitespaceSplit"}
MARKS = {"type": "Replace", "pattern": {"String": MARK}, "content": " "}
BYTES, FUSE = {"type": "ByteFallback"}, {"type": "Fuse"}
STRIP = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
LLAMA_DECODER = sequence("decoders", MARKS, BYTES, FUSE, STRIP)
# name: (model, settings of tokenizer.json)
VARIANTS = {
    "t5": ("unigram", {"normalizer": PRECOMPILED, "pre_tokenizer": sequence("pretokenizers", WORDS, metaspace("always")),
                       "decoder": metaspace("always"), "post_processor": template(after=["</s>"])}),
    "t5 early": ("unigram", {"normalizer": sequence("normalizers", PRECOMPILED, {"type": "Strip", "strip_left": False,
                                                                               "strip_right": True}, RUNS),
                             "pre_tokenizer": {"type": "Metaspace", "replacement": MARK, "add_prefix_space": True},
                             "decoder": {"type": "Metaspace", "replacement": MARK, "add_prefix_space": True},
                             "post_processor": template(after=["</s>"])}),
    "unigram whole": ("unigram", {"normalizer": BLANKS, "pre_tokenizer": metaspace("first", split=False),
                                  "decoder": metaspace("never"), "post_processor": None}),
    "unigram strip": ("unigram", {"normalizer": {"type": "Strip", "strip_left": True, "strip_right": False},
                                  "pre_tokenizer": metaspace("never"), "decoder": metaspace("always"),
                                  "post_processor": None}),
    "llama": ("bpe", {"normalizer": sequence("normalizers", {"type": "Prepend", "prepend": MARK}, BLANKS),
                      "pre_tokenizer": None, "decoder": LLAMA_DECODER, "post_processor": template(before=["<s>"])}),
    "llama first": ("bpe", {"normalizer": None, "pre_tokenizer": metaspace("first", split=False),
                            "decoder": LLAMA_DECODER, "post_processor": template(before=["<s>"], after=["</s>"])}),
    "gemma": ("bpe", {"normalizer": BLANKS, "decoder": sequence("decoders", MARKS, BYTES, FUSE),
                      "pre_tokenizer": {"type": "Split", "pattern": {"String": " "},
                                        "behavior": "MergedWithPrevious", "invert": False},
                      "post_processor": template(before=["<s>"])}),
    "bpe without bytes": ("bpe", {"normalizer": BLANKS, "pre_tokenizer": metaspace("always"), "post_processor": None,
                                  "decoder": sequence("decoders", MARKS, FUSE), "model": {"byte_fallback": False}}),
    "bpe unfused": ("bpe", {"normalizer": BLANKS, "pre_tokenizer": metaspace("always"), "post_processor": None,
                            "decoder": sequence("decoders", MARKS, FUSE),
                            "model": {"byte_fallback": False, "fuse_unk": False}}),
    "bpe whole words": ("bpe", {"normalizer": None, "pre_tokenizer": metaspace("always"), "post_processor": None,
                                "decoder": LLAMA_DECODER, "model": {"ignore_merges": True, "merges": []}}),
    "normalized tokens": ("bpe", {"normalizer": sequence("normalizers", {"type": "Prepend", "prepend": MARK}, BLANKS),
                                  "pre_tokenizer": None, "decoder": LLAMA_DECODER, "post_processor": None,
                                  "normalized": True}),
}
# name: (model, settings of its normalizer_spec that differ), encoded by `sentencepiece` itself
ORIGINALS = {
    "unigram": ("unigram", {}), "bpe": ("bpe", {}), "bpe without blank": ("bpe", {"add_dummy_prefix": False}),
    "bpe fewer blanks": ("bpe", {"remove_extra_whitespaces": True}),
}
CORPUS_KINDS = ["unigram", "bpe", "t5", "llama", "gemma"]


def model_json(proto):
    """What the test makes of a .model file; see tests/model/sentencepiece_test.cc."""
    if proto.trainer_spec.model_type == 1:
        return {"type": "Unigram", "unk_id": proto.trainer_spec.unk_id, "byte_fallback": False,
                "vocab": [[p.piece, p.score] for p in proto.pieces]}
    return {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None,
            "end_of_word_suffix": None, "fuse_unk": True, "byte_fallback": True, "ignore_merges": False,
            "vocab": {p.piece: i for i, p in enumerate(proto.pieces)}, "merges": merges_of(proto)}


def complete(proto, settings):
    settings = json.loads(json.dumps(settings))
    text = json.dumps(settings).replace('"precompiled_charsmap": null', '"precompiled_charsmap": "%s"' % base64.b64encode(
        proto.normalizer_spec.precompiled_charsmap).decode())
    settings = json.loads(text)
    model = {**model_json(proto), **settings.pop("model", {})}
    normalized = settings.pop("normalized", False)
    tokens = [added(p.piece, i, special=p.type != 4 and not normalized, normalized=normalized)
              for i, p in enumerate(proto.pieces) if p.type in (2, 3, 4)]
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": tokens, **settings, "model": model}


def original(proto, changes):
    """encode and decode of the library; control pieces are found in a text, which it leaves to its callers."""
    own = spm_pb2.ModelProto.FromString(proto.SerializeToString())
    for name, value in changes.items():
        setattr(own.normalizer_spec, name, value)
    processor = sentencepiece.SentencePieceProcessor(model_proto=own.SerializeToString())
    controls = {p.piece: i for i, p in enumerate(own.pieces) if p.type == 3}
    pattern = re.compile("(" + "|".join(map(re.escape, controls)) + ")")

    def encode(text):
        ids = []
        for part in pattern.split(text):
            ids += [controls[part]] if part in controls else processor.encode(part)
        return ids
    return encode, lambda ids: processor.decode([i for i in ids if i not in controls.values()])


def fnv_text(text):
    return f"{fnv1a(text.encode()):016x}"


def summary(ids):
    return f"{len(ids)} {fnv1a(ids_bytes(ids)):016x}"


def main():
    texts = [text for _, _, text in corpus_paragraphs.paragraphs_of(CORPUS)]
    lines = [line for text in texts[::2] for line in text.split("\n")]
    protos = {
        "unigram": train("unigram", lines, vocab_size=1200, model_type="unigram", pad_id=0, eos_id=1, unk_id=2, bos_id=-1,
                         character_coverage=0.999, own_rules=True, user_defined_symbols=["<user>"]),
        "bpe": train("bpe", lines, vocab_size=1200, model_type="bpe", byte_fallback=True, split_digits=True,
                     normalization_rule_name="identity", remove_extra_whitespaces=False, character_coverage=0.999,
                     allow_whitespace_only_pieces=True, user_defined_symbols=["<user>"]),
    }
    tokenizers = {name: Tokenizer.from_str(json.dumps(complete(protos[model], settings)))
                  for name, (model, settings) in VARIANTS.items()}
    kinds = {name: original(protos[model], changes) for name, (model, changes) in ORIGINALS.items()}
    for name, t in tokenizers.items():
        kinds[name] = (lambda text, t=t: t.encode(text).ids, lambda ids, t=t: t.decode(ids))

    corpus = []
    for index, text in ((i, t) for _, i, t in corpus_paragraphs.paragraphs_of(CORPUS)):
        every = [kinds[name][0](text) for name in CORPUS_KINDS]
        corpus.append(f"{index} {sum(map(len, every))} {fnv1a(b''.join(map(ids_bytes, every))):016x}\n")
    (DATA / "spm_corpus.txt").write_text("".join(corpus))
    cases = []
    for name, text in {**SHARED_NASTY, **NASTY}.items():
        case = {"name": name, "text": text} if name in NASTY else {"name": name}
        case["ids"] = {}
        for kind, (encode, decode) in kinds.items():
            ids = encode(text)
            case["ids"][kind] = f"{summary(ids)} {fnv_text(decode(ids))}"
        cases.append(case)
    by_kind = {}
    for kind in kinds:
        same = by_kind.setdefault(json.dumps([case["ids"][kind] for case in cases]), kind)
        assert same == kind, f"{kind} gives what {same} gives: its settings are not put to the test"
    text = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    (DATA / "spm_nasty.json").write_text(f"[\n{text}\n]\n")
    variants = [{"name": name, "model_file": model, **settings} for name, (model, settings) in VARIANTS.items()]
    text = ",\n".join(json.dumps(variant, separators=(",", ":")) for variant in variants)
    (DATA / "spm_variants.json").write_text(f"[\n{text}\n]\n")
    print(len(corpus), "paragraphs;", len(cases), "strings")


if __name__ == "__main__":
    main()
