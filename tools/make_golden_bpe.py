#!/usr/bin/env python3
"""Writes what the Hugging Face `tokenizers` library makes of real and of nasty text with byte-level BPE,
for the tests of stof's own tokenizer. The vocabulary is SmolLM2's, under the four ways to split words
that stof knows (SPLITS).

  tests/data/bpe_corpus.txt   one line per paragraph of tools/corpus_paragraphs.py: its index, the
                              number of ids of all four, 64-bit FNV-1a over them (int32, little endian)
  tests/data/bpe_nasty.json   the same for strings of wordpiece_nasty.json (by name) and of NASTY below
  tests/data/bpe_unicode.txt  for every 4096 code points, FNV-1a over the lengths of words around each
  tests/data/bpe_tiny.json    a small vocabulary in tokenizer.json files with settings of every kind

    scripts/setup --models --corpus && pip install numpy safetensors tokenizers && tools/make_golden_bpe.py
"""
import json
import pathlib
import sys

from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "scripts")]
import corpus_paragraphs  # noqa: E402
import fetch_data  # noqa: E402
import gguf_to_hf  # noqa: E402
from make_golden_wordpiece import NASTY as SHARED_NASTY, fnv1a  # noqa: E402

DATA = ROOT / "tests" / "data"
MODEL = fetch_data.cache_folder() / "models" / "smollm2-135m-instruct" / "SmolLM2-135M-Instruct.Q4_1.gguf"
CORPUS = fetch_data.cache_folder() / "corpus" / "django-docs"

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace("{1,3}", "")


def by_regex(pattern):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"),
                                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


SPLITS = {
    "smollm": pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                       pre_tokenizers.ByteLevel(add_prefix_space=False)]),
    "gpt2": pre_tokenizers.ByteLevel(add_prefix_space=False),
    "llama3": by_regex(LLAMA3),
    "qwen2": by_regex(QWEN2),
}

NASTY = {
    "contractions": "I'm you're we've they'll he'd it's don't I'M YOU'RE WE'VE THEY'LL HE'D IT'S DON'T 'tis o'clock ''s",
    "long s": "it'\u017f IT'\u017f '\u017f",
    "spaces before words": "a b  c   d    e\tf\t\tg \t h",
    "spaces at ends": "  leading and trailing   ",
    "newlines": "a\nb\n\nc\n\n\nd \n e\n  f\r\n\r\ng\t\nh \n",
    "newlines after punctuation": "end.\nnext!\r\n\r\n(a)\n \n...\n\n",
    "spaces then newline then spaces": "a   \n   b \n\n   c",
    "digits": "1 12 123 1234 12345 1,234,567.89 a1b22c333d4444 1st 2nd x² ½ ⅷ ٣٤ १२३",
    "spaces and digits": "a 1 b  2 c   3   44    555",
    "numbers of a newer Unicode": "a\U00011de0\U00011de5b \U00016ff4c",
    "code": "def f(x):\n    return {\"k\": [x**2, -1e-9]}  # done\n\tif x!=0:\n\t\tpass\n",
    "chat": "<|im_start|>system\nYou are helpful.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n",
    "special tokens": "<|endoftext|> a<|endoftext|>b <|im_start|<|im_end|> <|IM_END|> <repo_name><file_sep><<|im_end|>>",
    "rare bytes": "\u0080\u07ff\u0800\uffff\U00010000\U000fffff\U00100000\U0010ffff\u0000\u0001\u007f",
    "prefix of letters": ".a !b \tc \u00a0d $e_f -g (h) \u3000i \u2028j \u0085k",
    "1,000 spaces": "a" + " " * 1000 + "b",
    "3,000 digits": "7" * 3000,
    "1,000 newlines": "\n" * 1000 + "x",
    "5,000 letters": "ab" * 2500,
}


def ids_bytes(ids):
    return b"".join(i.to_bytes(4, "little") for i in ids)


def line_of(tokenizers, text):
    every = [t.encode(text).ids for t in tokenizers.values()]
    return f"{sum(map(len, every))} {fnv1a(b''.join(map(ids_bytes, every))):016x}"


def write_corpus(tokenizers):
    lines = [f"{index} {line_of(tokenizers, text)}\n" for _, index, text in corpus_paragraphs.paragraphs_of(CORPUS)]
    (DATA / "bpe_corpus.txt").write_text("".join(lines))
    print(len(lines), "paragraphs")


def write_nasty(tokenizers):
    cases = []
    for name, text in {**SHARED_NASTY, **NASTY}.items():
        case = {"name": name, "text": text} if name in NASTY else {"name": name}
        case["ids"] = {kind: f"{len(t.encode(text).ids)} {fnv1a(ids_bytes(t.encode(text).ids)):016x}"
                       for kind, t in tokenizers.items()}
        case["decoded"] = f"{fnv1a(tokenizers['smollm'].decode(tokenizers['smollm'].encode(text).ids).encode()):016x}"
        cases.append(json.dumps(case, separators=(",", ":")))
    (DATA / "bpe_nasty.json").write_text("[\n" + ",\n".join(cases) + "\n]\n")


def write_unicode():
    lines = []
    for block in range(0, 0x110000, 0x1000):
        state = 0xCBF29CE484222325
        for c in range(block, block + 0x1000):
            if 0xD800 <= c < 0xE000:
                continue
            text = f"a{chr(c)} {chr(c)}1"
            for kind in ("smollm", "llama3"):
                lengths = [end - begin for _, (begin, end) in SPLITS[kind].pre_tokenize_str(text)]
                state = fnv1a(bytes(lengths), state)
        lines.append(f"{block:x} {state:016x}\n")
    (DATA / "bpe_unicode.txt").write_text("".join(lines))


def write_tiny():
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    sample = [text for _, _, text in corpus_paragraphs.paragraphs_of(CORPUS)][:40]
    alphabet = [c for c in pre_tokenizers.ByteLevel.alphabet() if c not in "~Ń"]  # two bytes without a token
    trainer = trainers.BpeTrainer(vocab_size=360, special_tokens=["<unk>", "<s>", "</s>"], initial_alphabet=alphabet,
                                  limit_alphabet=len(alphabet), show_progress=False)
    trained.train_from_iterator(sample, trainer)
    model = json.loads(trained.to_str())["model"]
    model["merges"] = [m for m in model["merges"]]
    longest = max(model["vocab"], key=len)
    size = len(model["vocab"])

    def added(content, id, **on):
        flags = dict(single_word=False, lstrip=False, rstrip=False, normalized=False, special=True)
        return {"id": id, "content": content, **flags, **on}

    specials = [added("<unk>", 0), added("<s>", 1), added("</s>", 2)]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    split = {"type": "Split", "pattern": {"Regex": LLAMA3}, "behavior": "Isolated", "invert": False}
    template = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
                                                         {"Sequence": {"id": "A", "type_id": 0}}],
                "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
                "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}}
    variants = {
        "plain": {"model": {"unk_token": None}, "pre_tokenizer": byte_level, "post_processor": None, "normalizer": None,
                  "added_tokens": specials},
        "prefix space": {"model": {"unk_token": None}, "pre_tokenizer": {**byte_level, "add_prefix_space": True},
                         "post_processor": {**byte_level}, "normalizer": None,
                         "added_tokens": specials + [added("New  York", size, special=False),
                                                     added("<left>", size + 1, lstrip=True),
                                                     added("<right>", size + 2, rstrip=True, special=False)]},
        "unknown": {"model": {"unk_token": "<unk>"}, "pre_tokenizer": byte_level, "post_processor": None,
                    "normalizer": None, "added_tokens": specials},
        "llama3": {"model": {"unk_token": None, "ignore_merges": True}, "normalizer": None, "added_tokens": specials,
                   "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
                       split, {**byte_level, "use_regex": False}]},
                   "post_processor": {"type": "Sequence", "processors": [byte_level, template]}},
        "qwen2": {"model": {"unk_token": None}, "normalizer": {"type": "NFC"},
                  "added_tokens": specials + [added("\u00e9\u00e9", size, special=False, normalized=True)],
                  "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
                      {**split, "pattern": {"Regex": QWEN2}}, {**byte_level, "use_regex": False}]},
                  "post_processor": byte_level},
        "digits": {"model": {"unk_token": None}, "normalizer": None, "added_tokens": specials, "post_processor": None,
                   "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
                       {"type": "Digits", "individual_digits": True}, byte_level]}},
    }
    # Without the merges that lead to it, the longest word is found by ignore_merges alone.
    llama3_merges = [m for m in model["merges"] if "".join(m) != longest]
    texts = ["", "a", " a", "the documentation", "~tilde\x80~~ x", "a<s>b</s> <s>", "New  York  <left> x <right>  y",
             "e\u0301e\u0301 \u00e9\u00e9 e\u0301", "it's 12345 o'clock\n\n  IT'S", longest.replace("Ġ", " "),
             "x" + longest.replace("Ġ", " ") + "y", "1 22 333"]
    golden = {"model": model, "variants": [], "texts": texts}
    for name, settings in variants.items():
        own = {**model, "fuse_unk": False, **settings["model"]}
        if name == "llama3":
            own["merges"] = llama3_merges
        full = {"version": "1.0", "truncation": None, "padding": None, "decoder": byte_level, **settings, "model": own}
        tokenizer = Tokenizer.from_str(json.dumps(full))
        changes = {**settings["model"], **({"merges": llama3_merges} if name == "llama3" else {})}
        cases = [tokenizer.encode(text).ids for text in texts]
        golden["variants"].append({"name": name, "tokenizer": {**settings, "model": changes}, "ids": cases,
                                   "decoded": [tokenizer.decode(ids) for ids in cases]})
    (DATA / "bpe_tiny.json").write_text(json.dumps(golden, separators=(",", ":")) + "\n")


def main():
    metadata = gguf_to_hf.Gguf(MODEL).metadata
    tokenizers = {kind: gguf_to_hf.tokenizer_of(metadata, split) for kind, split in SPLITS.items()}
    write_tiny()
    write_nasty(tokenizers)
    write_corpus(tokenizers)
    write_unicode()


if __name__ == "__main__":
    main()
