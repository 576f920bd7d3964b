"""What docs/python.md and examples/ show of FlexAttention, run."""

import re
import runpy
from pathlib import Path

from comparing import assert_close
from flexing import torch_flex_attention

ROOT = Path(__file__).resolve().parents[4]


def test_the_block_of_python_md():
    text = (ROOT / "docs/python.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.S | re.M)
    (block,) = (block for block in blocks if "stof.compat.flex" in block)
    names = {}
    exec(compile(block, "docs/python.md", "exec"), names)
    q, k, v = (names[name] for name in "qkv")
    expected, _ = torch_flex_attention(q, k, v, names["score_mod"], names["mask_mod"])
    assert_close(names["out"], expected, q.dtype)


def test_the_example(capsys):
    runpy.run_path(str(ROOT / "examples/flex_drop_in.py"))
    assert "largest difference" in capsys.readouterr().out
