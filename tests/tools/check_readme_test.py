"""Runs tools/check_readme.py on small Markdown files with a program made here."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

TOOL = pathlib.Path(__file__).resolve().parents[2] / "tools" / "check_readme.py"


class CheckReadme(unittest.TestCase):
    def run_on(self, markdown):
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder) / "stof"
            program.write_text('#!/bin/sh\necho "stof says $*"; [ "$1" != bad ]\n')
            program.chmod(0o755)
            readme = pathlib.Path(folder) / "README.md"
            readme.write_text(markdown)
            result = subprocess.run([sys.executable, TOOL, readme, "--stof", program], text=True, check=False,
                                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            return result.returncode, result.stdout

    def test_runs_marked_blocks_with_the_program_on_the_path(self):
        code, output = self.run_on("```sh run\nstof good > a\n```\ntext\n```sh run\ncat a\n```\n")
        self.assertEqual(code, 0, output)
        self.assertIn("stof says good\n", output)
        self.assertIn("2 blocks ran", output)

    def test_leaves_other_blocks_alone(self):
        code, output = self.run_on("```sh\nfalse\n```\n```sh run\ntrue\n```\n")
        self.assertEqual(code, 0, output)

    def test_fails_with_the_line_of_the_block_that_failed(self):
        code, output = self.run_on("# a\n\n```sh run\nstof bad\necho not reached | cat\n```\n")
        self.assertEqual(code, 1, output)
        self.assertIn("README.md:4: exited 1", output)

    def test_compares_what_a_console_block_shows(self):
        shown = "```console run\n$ stof a\nstof says a\n\n$ stof b; stof c\nstof says b\nstof says c\n```\n"
        code, output = self.run_on(shown)
        self.assertEqual(code, 0, output)
        code, output = self.run_on(shown.replace("says c", "says  c"))
        self.assertEqual(code, 1, output)
        self.assertIn("README.md:5: prints something else", output)
        self.assertIn("+stof says c", output)
        self.assertEqual(self.run_on(shown.replace("stof says c\n", ""))[0], 1)
        self.assertEqual(self.run_on(shown.replace("stof b", "stof bad"))[0], 1)

    def test_lets_durations_of_a_console_block_differ(self):
        shown = "```console run\n$ stof built in 7 us, 1.5 ms, 2 s\nstof says built in 12 us, 9.5 ms, 3 s\n```\n"
        code, output = self.run_on(shown)
        self.assertEqual(code, 0, output)
        self.assertEqual(self.run_on(shown.replace("says built in 12 us", "says built in 12 pairs"))[0], 1)

    def test_refuses_a_console_block_without_a_command(self):
        code, output = self.run_on("```console run\nstof a\n```\n")
        self.assertEqual(code, 2, output)

    def test_refuses_a_stof_command_that_nothing_runs(self):
        for block in ("```\nstof a\n```\n", "```sh\n$ stof a\n```\n"):
            code, output = self.run_on("```sh run\ntrue\n```\n" + block)
            self.assertEqual(code, 2, output)
            self.assertIn("line 4", output)

    def test_refuses_a_file_without_runnable_blocks(self):
        self.assertEqual(self.run_on("```sh\ntrue\n```\n")[0], 2)

    def test_refuses_a_block_that_is_never_closed(self):
        code, output = self.run_on("a\n```sh run\ntrue\n")
        self.assertEqual(code, 2, output)
        self.assertIn("line 2", output)


if __name__ == "__main__":
    unittest.main()
