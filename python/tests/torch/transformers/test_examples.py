"""The examples with models run and print what they promise."""

import pathlib
import re
import runpy

import pytest

EXAMPLES = pathlib.Path(__file__).resolve().parents[4] / "examples"


@pytest.mark.parametrize(
    "script, shown, least, most",
    [
        ("bert_long_document.py", r"those further away by up to (\S+)", 0.0, 1e-2),
        ("llama_sliding_window.py", r"largest difference of the logits: (\S+)", 0.0, 1e-3),
    ],
)
def test_examples(script, shown, least, most, capsys):
    runpy.run_path(str(EXAMPLES / script))
    found = re.search(shown, capsys.readouterr().out)
    assert found and least <= float(found[1]) <= most
