"""Runs tools/attention_table.py on files that show what bench/results says, and on files that don't."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "tools" / "attention_table.py"


class AttentionTableTest(unittest.TestCase):
    def run_script(self, *arguments):
        done = subprocess.run([sys.executable, SCRIPT, *arguments], text=True, capture_output=True, check=False)
        return done.returncode, done.stdout

    def check(self, text):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "page.md"
            path.write_text(text, encoding="utf-8")
            return self.run_script("--check", path)

    def test_takes_what_it_prints(self):
        code, printed = self.run_script()
        self.assertEqual(code, 0)
        self.assertEqual(self.check(printed), (0, ""))

    def test_names_a_figure_and_a_line_that_differ(self):
        printed = self.run_script()[1]
        table, figures = printed.split("\n\n")
        code, output = self.check(table + "\n\ngeometric mean: 9.99")
        self.assertEqual(code, 1)
        self.assertIn("geometric mean: expected " + figures.split("geometric mean: ")[1].split("\n")[0], output)
        code, output = self.check(printed.replace("| dense |", "| dense | 1"))
        self.assertEqual(code, 1)
        self.assertIn("expected the line\n  | dense |", output)


if __name__ == "__main__":
    unittest.main()
