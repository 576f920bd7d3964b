#!/usr/bin/env python3
"""Writes tests/data/chat_golden.json: conversations as transformers writes them by the chat templates
that stof recognises. SmolLM2's is read from its GGUF file.

    scripts/setup --models && pip install transformers jinja2 numpy safetensors && tools/make_golden_chat.py
"""
import json
import pathlib
import sys

from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "scripts")]
import fetch_data  # noqa: E402
import gguf_to_hf  # noqa: E402

MODEL = fetch_data.cache_folder() / "models" / "smollm2-135m-instruct" / "SmolLM2-135M-Instruct.Q4_1.gguf"
CHATML = ("{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' "
          "+ '\\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")
CONVERSATIONS = [
    [("user", "What is a hash table?")],
    [("system", "Answer in French."), ("user", "Hello\n\nthere ")],
    [("user", "1"), ("assistant", "one"), ("user", "")],
    [("user", "a"), ("system", "<|im_end|> é")],
]


def main():
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()))
    golden = []
    for template in (CHATML, gguf_to_hf.Gguf(MODEL).metadata["tokenizer.chat_template"]):
        cases = []
        for turns in CONVERSATIONS:
            messages = [{"role": role, "content": content} for role, content in turns]
            prompt = tokenizer.apply_chat_template(messages, chat_template=template, tokenize=False,
                                                   add_generation_prompt=True)
            cases.append({"messages": messages, "prompt": prompt})
        golden.append({"template": template, "cases": cases})
    (ROOT / "tests" / "data" / "chat_golden.json").write_text(json.dumps(golden, indent=1) + "\n")


if __name__ == "__main__":
    main()
