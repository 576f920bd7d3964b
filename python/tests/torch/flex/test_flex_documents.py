"""What docs/python.md and examples/ show of FlexAttention, run."""

import importlib
import re
import runpy
from pathlib import Path

from comparing import assert_close
from flexing import torch_flex_attention

ROOT = Path(__file__).resolve().parents[4]


def test_the_block_of_python_md(tmp_path, monkeypatch):
    text = (ROOT / "docs/python.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.S | re.M)
    (block,) = (block for block in blocks if "stof.compat.flex" in block)
    file = tmp_path / "python_md_block.py"  # torch reads the source of what it compiles
    file.write_text(block)
    monkeypatch.syspath_prepend(tmp_path)
    block = importlib.import_module("python_md_block")
    q, k, v = block.q, block.k, block.v
    expected, _ = torch_flex_attention(q, k, v, block.score_mod, block.mask_mod)
    assert_close(block.out, expected, q.dtype)


def test_the_example(capsys):
    runpy.run_path(str(ROOT / "examples/flex_drop_in.py"))
    assert "largest difference" in capsys.readouterr().out
