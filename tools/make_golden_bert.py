#!/usr/bin/env python3
"""Writes what all-MiniLM-L6-v2 makes of real texts, for the parity tests of stof's encoder.

An implementation of BERT of its own: Hugging Face `tokenizers` and numpy in float64, dense masks,
one text at a time. Writes tests/data/bert_golden.json (the texts: sentences of our own, and paragraphs
and files of the pinned corpus by number and name) and tests/data/bert_golden.safetensors:

  embeddings        [texts, 384]  pooled and normalised, cut to the checkpoint's 256 tokens
  long_<mask>       [files, 384]  whole files cut to 512 tokens, under each mask of bert_golden.json
  hidden_<i>        [tokens, 384] last hidden states of text i

    scripts/setup --models --corpus && pip install tokenizers numpy safetensors
    tools/make_golden_bert.py
"""
import json
import math
import pathlib
import sys

import numpy as np
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "scripts")]
import corpus_paragraphs  # noqa: E402
import fetch_data  # noqa: E402

DATA = ROOT / "tests" / "data"
MODEL = fetch_data.cache_folder() / "models" / "all-minilm-l6-v2"
CORPUS = fetch_data.cache_folder() / "corpus" / "django-docs"
NUM_PARAGRAPHS = 40
HIDDEN_OF = (0, 1, 7)

SENTENCES = [
    "The ferry leaves the harbour at seven, and the last one back is at ten.",
    "",
    "Why?",
    "Sparse attention looks at some of the keys and never loads the others.",
    "My grandmother kept bees for forty years and was stung twice.",
    "Der Zug nach Leipzig hat heute eine halbe Stunde Verspätung.",
    "Können Sie mir bitte sagen, wo die nächste Apotheke ist?",
    "Le boulanger ouvre sa boutique avant le lever du soleil.",
    "À quelle heure commence la réunion de l'après-midi ?",
    "El perro de mi vecina duerme todo el día y ladra toda la noche.",
    "¿Quién dejó la ventana abierta durante la tormenta?",
    "A biblioteca fecha às seis, mas o café fica aberto até tarde.",
    "Il treno attraversa la valle prima di entrare nella galleria.",
    "De fietsen staan achter het huis, naast de oude schuur.",
    "Huset ved sjøen har vært tomt siden i fjor høst.",
    "Jezioro zamarzło w nocy, więc rano poszliśmy na łyżwy.",
    "Вчера вечером мы долго гуляли по набережной.",
    "Το καφενείο της πλατείας ανοίγει πολύ νωρίς το πρωί.",
    "Akşam yemeğinden sonra hep birlikte çay içtik.",
    "昨天晚上下了一场大雨，今天的空气很清新。",
    "駅前の本屋は午後九時まで開いています。",
    "오늘은 날씨가 좋아서 공원에서 점심을 먹었어요.",
    "القطار يصل إلى المدينة قبل منتصف الليل.",
    "הספרייה נפתחת מחדש לאחר שיפוץ ארוך.",
    "कल सुबह हम पहाड़ों की ओर निकलेंगे।",
    "พรุ่งนี้เราจะไปตลาดแต่เช้า",
    "Ngày mai trời sẽ mưa, nhớ mang theo áo mưa nhé.",
    "Total: 3 × 4.50 € = 13.50 € (incl. 19 % VAT), order no. A-2031/b.",
    "if (x < 0) { return -x; }  // the absolute value",
    "👍🏽 great work 🎉🎉 see you at 18:30 :-)",
    "The capital of France is [MASK].",
    "To whom it may concern: the lift on the east side of the building will be out of service from Monday "
    "morning until Wednesday evening. During that time the goods lift next to the loading dock may be used "
    "by everyone; please mind the step. Deliveries that do not fit into the goods lift have to wait until "
    "Thursday. We are sorry for the trouble and thank you for your patience. If you have questions, or if "
    "you need help to reach the upper floors, call the caretaker, whose number is on the board in the hall.",
    " ".join(f"Station {i} of the mountain railway lies {120 + 37 * i} metres above the sea." for i in range(40)),
]

LONG_FILES = ["intro/tutorial01.txt", "topics/db/queries.txt", "ref/models/fields.txt"]
MASKS = {  # as stof spells them; the functions below say what they mean
    "dense": "all",
    "sliding": "window(24, 24)",
    "bigbird": "bigbird(block=32, window_blocks=1, global_blocks=1, random_count=2, seed=11)",
}

BITS = (1 << 64) - 1


def mix(x):
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & BITS
    x = (x ^ x >> 27) * 0x94D049BB133111EB & BITS
    return x ^ x >> 31


def random_key(seed, row, col):
    state = 0
    for value in (seed, 0, row, col):  # 0: one pattern for all heads
        state = mix((state ^ value) + 0x9E3779B97F4A7C15 & BITS)
    return state


def visible(name, n):
    q, k = np.arange(n)[:, None], np.arange(n)[None, :]
    if name == "dense":
        return np.ones((n, n), bool)
    if name == "sliding":
        return abs(q - k) <= 24
    block, blocks = 32, -(-n // 32)
    table = abs(np.arange(blocks)[:, None] - np.arange(blocks)[None, :]) <= 1
    table[0, :] = table[:, 0] = True
    for row in range(blocks):
        for col in sorted(range(blocks), key=lambda c: random_key(11, row, c))[:2]:
            table[row, col] = True
    return table[q // block, k // block]


def gelu(x):
    return x / 2 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


class Bert:
    def __init__(self):
        self.config = json.loads((MODEL / "config.json").read_text())
        assert self.config["hidden_act"] == "gelu" and self.config["position_embedding_type"] == "absolute"
        self.weights = {name: tensor.astype(np.float64)
                        for name, tensor in load_file(MODEL / "model.safetensors").items()}
        self.tokenizer = Tokenizer.from_file(str(MODEL / "tokenizer.json"))
        self.tokenizer.no_padding()

    def dense(self, x, name):
        return x @ self.weights[name + ".weight"].T + self.weights[name + ".bias"]

    def norm(self, x, name):
        centred = x - x.mean(-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + self.config["layer_norm_eps"])
        return scaled * self.weights[name + ".weight"] + self.weights[name + ".bias"]

    def hidden(self, text, limit, mask="dense"):
        self.tokenizer.enable_truncation(limit)
        ids = self.tokenizer.encode(text).ids
        n, heads = len(ids), self.config["num_attention_heads"]
        table = "embeddings.{}_embeddings.weight".format
        x = self.norm(self.weights[table("word")][ids] + self.weights[table("position")][:n] +
                      self.weights[table("token_type")][0], "embeddings.LayerNorm")
        hidden = np.where(visible(mask, n), 0.0, -np.inf)
        for layer in range(self.config["num_hidden_layers"]):
            name = f"encoder.layer.{layer}."
            q, k, v = (self.dense(x, f"{name}attention.self.{part}").reshape(n, heads, -1).transpose(1, 0, 2)
                       for part in ("query", "key", "value"))
            scores = q @ k.transpose(0, 2, 1) / math.sqrt(q.shape[-1]) + hidden
            scores = np.exp(scores - scores.max(-1, keepdims=True))
            context = (scores / scores.sum(-1, keepdims=True) @ v).transpose(1, 0, 2).reshape(n, -1)
            x = self.norm(x + self.dense(context, name + "attention.output.dense"),
                          name + "attention.output.LayerNorm")
            inner = gelu(self.dense(x, name + "intermediate.dense"))
            x = self.norm(x + self.dense(inner, name + "output.dense"), name + "output.LayerNorm")
        return x

    def embed(self, text, limit, mask="dense"):
        mean = self.hidden(text, limit, mask).mean(0)
        return mean / np.linalg.norm(mean)


def main():
    bert = Bert()
    limit = json.loads((MODEL / "sentence_bert_config.json").read_text())["max_seq_length"]
    paragraphs = {index: text for _, index, text in corpus_paragraphs.paragraphs_of(CORPUS)}
    numbers = list(paragraphs)[:: len(paragraphs) // NUM_PARAGRAPHS][:NUM_PARAGRAPHS]
    texts = SENTENCES + [paragraphs[number] for number in numbers]
    files = [(CORPUS / name).read_text() for name in LONG_FILES]
    tensors = {"embeddings": np.stack([bert.embed(text, limit) for text in texts])}
    for mask in MASKS:
        tensors[f"long_{mask}"] = np.stack([bert.embed(text, 512, mask) for text in files])
    for i in HIDDEN_OF:
        tensors[f"hidden_{i}"] = bert.hidden(texts[i], limit)
    save_file({name: np.ascontiguousarray(t, np.float32) for name, t in tensors.items()},
              DATA / "bert_golden.safetensors")
    golden = {"sentences": SENTENCES, "paragraphs": numbers, "files": LONG_FILES, "masks": MASKS,
              "hidden_of": HIDDEN_OF}
    (DATA / "bert_golden.json").write_text(json.dumps(golden, indent=1, ensure_ascii=False) + "\n")
    print(len(texts), "texts")


if __name__ == "__main__":
    main()
