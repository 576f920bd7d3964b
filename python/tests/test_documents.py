"""What docs/python.md and examples/ show, run."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


CACHE = Path(os.environ.get("STOF_CACHE") or Path.home() / ".cache/stof")


def blocks(text):
    return re.findall(r"^```python run\n(.*?)^```$", text, re.S | re.M)


@pytest.mark.parametrize("page, least", [("docs/python.md", 7), ("README.md", 2)])
def test_the_blocks_of_pages(page, least, tmp_path, monkeypatch):
    found = blocks((ROOT / page).read_text())
    assert len(found) >= least
    for model in (CACHE / "models").iterdir():  # which pages call by its name
        (tmp_path / model.name).symlink_to(model)
    monkeypatch.chdir(tmp_path)
    names = {}
    for block in found:  # one after the other, as they are read
        exec(compile(block, page, "exec"), names)


@pytest.mark.parametrize(
    "script, arguments, shown",
    [
        ("custom_mask.py", ["drawn.png"], "query 70 sees [0, 1, 2, 3, 40, 58,"),
        ("numpy_laptop.py", ["256"], "largest difference to NumPy by hand:"),
        ("models.py", [], "  1.00 0.63 "),
    ],
)
def test_examples(script, arguments, shown, tmp_path):
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / script, *arguments],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},  # whatever else this machine does
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert shown in done.stdout
    if script == "numpy_laptop.py":  # which itself fails where the difference is large
        assert float(done.stdout.rsplit(":", 1)[1]) < 1e-5
    if script == "custom_mask.py":
        assert (tmp_path / "drawn.png").read_bytes().startswith(b"\x89PNG")
