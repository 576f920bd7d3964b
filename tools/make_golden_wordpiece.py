#!/usr/bin/env python3
"""Writes what the Hugging Face `tokenizers` library makes of real and of nasty text, for the tests
of stof's own tokenizer:

  tests/data/wordpiece_corpus.txt    one line per paragraph of tools/corpus_paragraphs.py: its index,
                                     the number of ids, 64-bit FNV-1a over the ids (int32, little endian)
  tests/data/wordpiece_nasty.json    strings with their ids, uncased and cased
  tests/data/wordpiece_unicode.txt   for every 4096 code points, FNV-1a over their normal forms
  tests/data/wordpiece_tiny.json     a small tokenizer.json with added tokens of every kind, with texts

    scripts/setup --models --corpus && pip install tokenizers && tools/make_golden_wordpiece.py
"""
import json
import pathlib
import sys

from tokenizers import Tokenizer, normalizers, pre_tokenizers

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "scripts")]
import corpus_paragraphs  # noqa: E402
import fetch_data  # noqa: E402

DATA = ROOT / "tests" / "data"
MODEL = fetch_data.cache_folder() / "models" / "all-minilm-l6-v2"
CORPUS = fetch_data.cache_folder() / "corpus" / "django-docs"


def fnv1a(data, state=0xCBF29CE484222325):
    for byte in data:
        state = (state ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return state


def load(cased=False):
    settings = json.loads((MODEL / "tokenizer.json").read_text())
    settings["truncation"] = settings["padding"] = None
    settings["normalizer"]["lowercase"] = not cased
    return Tokenizer.from_str(json.dumps(settings))


def write_corpus(tokenizer):
    lines = []
    for _, index, text in corpus_paragraphs.paragraphs_of(CORPUS):
        ids = tokenizer.encode(text).ids
        lines.append(f"{index} {len(ids)} {fnv1a(b''.join(i.to_bytes(4, 'little') for i in ids)):016x}\n")
    (DATA / "wordpiece_corpus.txt").write_text("".join(lines))
    print(len(lines), "paragraphs")


NASTY = {
    "empty": "",
    "only spaces": " \t\n\r  ",
    "only whitespace of Unicode": "\u00a0\u1680\u2000\u2003\u2028\u2029\u202f\u205f\u3000",
    "precomposed accents": "Éléphant naïve façade Ångström crème brûlée ÿ",
    "combining accents": "E\u0301le\u0301phant nai\u0308ve fac\u0327ade A\u030angstro\u0308m",
    "marks out of order": "a\u0301\u0323b\u0323\u0301 q\u0307\u0323\u0345\u0300",
    "lone combining marks": "\u0301 \u0301\u0301 a\u0300\u0301\u0302\u0303 \u20dd \u0903",
    "many marks on one letter": "z" + "\u0301\u0323" * 60 + "algo",
    "Vietnamese": "Tiếng Việt có nhiều dấu: ộ ễ ặ ử",
    "Chinese": "今天天气很好，我们去公园吧。GPU加速",
    "Japanese": "カタカナとひらがな、漢字。ﾊﾝｶｸ ﾊﾞ が か\u3099",
    "Korean": "안녕하세요 세계 \u1112\u1161\u11ab\u1100\u1173\u11af ㄱㄴㄷ",
    "compatibility ideographs": "豈更車 \U0002F800\U0002FA1D",
    "rare ideographs": "\U00020000\U0002A6DF\U0002A700\U0002B820\U0002B91F\U0002B920\U0002CEAF\U00030000",
    "emoji": "I ❤️ 👩‍👩‍👧‍👦 and 🏳️‍🌈 👍🏽 🇩🇪 1️⃣",
    "control characters": "a\u0001b\u0007c\u001bd\u007fe\u0080f\u0085g\u009fh",
    "vertical tab and form feed": "a\u000bb\u000cc",
    "NUL": "before\u0000after \u0000 end",
    "replacement character": "bad\ufffdbyte \ufffd\ufffd",
    "zero width": "zero\u200bwidth\u200cjoin\u200der\u2060word\ufeffbom\u00adhyphen",
    "bidirectional controls": "\u202aabc\u202c \u2066def\u2069 \u200e\u200f\u061c",
    "no-break spaces": "a\u00a0b\u202fc\u2007d",
    "dotted capital I": "İstanbul ISPARTA ıI İİ i\u0307",
    "sharp s": "Straße STRASSE ẞ",
    "final sigma": "ΟΔΥΣΣΕΥΣ Σίσυφος ς",
    "ligatures": "ﬁne ﬂow ﬀ ﬃ ﬆ Ǆ ǅ ǆ Œuvre Æsir",
    "Arabic": "مَرْحَبًا بالعالم، كيف حالك؟ ١٢٣",
    "Hebrew": "שָׁלוֹם עוֹלָם",
    "Hindi": "नमस्ते दुनिया क़ ख़ १२३।",
    "Thai": "สวัสดีชาวโลก ที่นี่",
    "Tamil": "வணக்கம் உலகம் கொ",
    "Cyrillic": "Съешь ЕЩЁ этих мягких французских булок, да выпей же чаю; Й й",
    "Greek with tonos": "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία ΐ ΰ ϊ",
    "Georgian capitals": "ᲐᲑᲒ აბგ",
    "Cherokee": "ᎣᏏᏲ ꭰꭱ",
    "Deseret": "\U00010400\U00010428",
    "fullwidth": "ＡＢＣ　１２３！？",
    "mathematical letters": "𝐇𝐞𝐥𝐥𝐨 𝕳𝖊𝖑𝖑𝖔 ℍ ℂ Å Ω K",
    "superscripts": "x² y³ H₂O ½ ⅷ №",
    "private use": "\ue000\uf8ff \U000f0000 \U0010fffd",
    "unassigned": "\u0378\u0379 \U0001fbff \U000e0fff",
    "non-characters": "\ufdd0\uffff\U0001ffff\U0010ffff",
    "variation selectors": "a\ufe0fb\U000e0100c",
    "tags": "\U0001f3f4\U000e0067\U000e0062\U000e007f",
    "musical marks": "\U0001d15e\U0001d160 \U0001d165",
    "old-table punctuation": "৽ ੶ ౷ \u2e4f \u2e52 \u061d \u166d \U000111c9 ₿",
    "newer marks": "a\u0898b\u08cac\u1ac1d \U00011938",
    "ASCII symbols": "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~",
    "currency and maths": "€ £ ¥ ₹ ± × ÷ ≠ ≤ ∑ √ ∞",
    "quotes": "“curly” ‘single’ «guillemets» „low“ … — – ‐",
    "inverted marks": "¿Qué? ¡Sí!",
    "special token": "The capital of France is [MASK].",
    "special tokens without spaces": "a[MASK]b[SEP][CLS]c[PAD]d[UNK]e",
    "special token in small letters": "[mask] [Mask] [ MASK ] [MASK",
    "special token across accents": "[MA\u0301SK] [MAS\u0000K]",
    "overlapping brackets": "[[MASK]] [[[SEP]]] [MASK[MASK]",
    "continuation prefix": "##ing ## # ###a un##known",
    "word of 100 letters": "a" * 100,
    "word of 101 letters": "a" * 101,
    "word of 100 letters that was longer": "a\u0301" * 100,
    "word of 10,000 letters": "x" + "y" * 9999,
    "1,000 letters that lose their marks": "a\u0301" * 1000,
    "1,000 ideographs": "語" * 1000,
    "1,000 punctuation marks": "." * 1000,
    "unknown letters": "\u16a0\u16a1 \U00012000 ok \u16a2x",
    "long identifiers": "std::unordered_map<std::string_view,std::int32_t>::const_iterator",
    "URL": "https://example.org/a/b?c=d&e=%20f#g user.name+tag@example.co.uk",
    "numbers": "3.14159 1,000,000 -5e-10 0x1F 2026-11-29T20:15:00Z",
    "CRLF": "line one\r\nline two\rline three",
    "tabs": "\tcol1\tcol2\t\tcol4",
    "mixed scripts": "Ünïcödé文字кирилл\u0438\u0306ца\u05d0\u05d1αβγ",
}


def write_nasty(uncased, cased):
    cases = [{"name": name, "text": text, "uncased": uncased.encode(text).ids, "cased": cased.encode(text).ids}
             for name, text in NASTY.items()]
    lines = ",\n".join(json.dumps(case, ensure_ascii=True, separators=(",", ":")) for case in cases)
    (DATA / "wordpiece_nasty.json").write_text(f"[\n{lines}\n]\n")


def write_unicode():
    split = pre_tokenizers.BertPreTokenizer()
    kinds = [normalizers.BertNormalizer(clean_text=c, handle_chinese_chars=h, strip_accents=s, lowercase=l)
             for c, h, s, l in ((True, True, True, True), (True, True, False, False), (False, False, True, False),
                                (False, False, False, True))]
    lines = []
    for block in range(0, 0x110000, 0x1000):
        state = 0xCBF29CE484222325
        for c in range(block, block + 0x1000):
            if 0xD800 <= c < 0xE000:
                continue
            text = f"A\u0345{chr(c)}b"
            for normalizer in kinds:
                state = fnv1a(normalizer.normalize_str(text).encode(), state)
            state = fnv1a(bytes([len(split.pre_tokenize_str(text))]), state)
        lines.append(f"{block:x} {state:016x}\n")
    (DATA / "wordpiece_unicode.txt").write_text("".join(lines))


def write_tiny():
    words = ["<pad>", "<unk>", "<s>", "</s>", "a", "b", "c", "ab", "abc", "~a", "~b", "~bc", "~c", "e", "~e",
             "new", "york", "x", "."]

    def added(content, id, **on):
        flags = dict(single_word=False, lstrip=False, rstrip=False, normalized=False, special=False)
        return {"id": id, "content": content, **flags, **on}

    settings = {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [added("<s>", 2, special=True), added("<ab>", 19), added("<abc>", 20),
                         added("<left>", 21, lstrip=True), added("<right>", 22, rstrip=True),
                         added("New York", 23, normalized=True), added("É", 24, normalized=True)],
        "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True,
                       "strip_accents": None, "lowercase": True},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {"type": "BertProcessing", "sep": ["</s>", 3], "cls": ["<s>", 2]},
        "decoder": None,
        "model": {"type": "WordPiece", "unk_token": "<unk>", "continuing_subword_prefix": "~",
                  "max_input_chars_per_word": 5, "vocab": {word: id for id, word in enumerate(words)}},
    }
    tokenizer = Tokenizer.from_str(json.dumps(settings))
    texts = ["", "abc abcb cab abcc", "a<s>b", "<ab><abc>", "<abcabc>", "a  <left>  b", "a  <right>  b",
             "a <right> <left> b", "new york NEW YORK New  York newyork", "é e\u0301 cafE\u0301 e", "abbbb abbbbb abccc",
             "<AB> <ab", " <left>", "<right> ", "<left><left> <right><right>"]
    cases = [{"text": text, "ids": tokenizer.encode(text).ids} for text in texts]
    golden = {"tokenizer": settings, "cases": cases}
    (DATA / "wordpiece_tiny.json").write_text(json.dumps(golden, indent=1) + "\n")


def main():
    DATA.mkdir(exist_ok=True)
    uncased, cased = load(), load(cased=True)
    write_nasty(uncased, cased)
    write_unicode()
    write_tiny()
    write_corpus(uncased)


if __name__ == "__main__":
    main()
