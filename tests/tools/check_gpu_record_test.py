"""Runs tools/check_gpu_record.py on a small tree and changes sources and record one at a time."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

TOOL = pathlib.Path(__file__).resolve().parents[2] / "tools" / "check_gpu_record.py"
SOURCES = {"kernels/a.cuh": "a", "src/plan/b.h": "b", "src/codegen/c.cc": "c", "src/backend/cuda/d/e.cc": "e"}


class CheckGpuRecord(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.root = pathlib.Path(self.folder.name)
        for name, text in SOURCES.items():
            self.write(name, text)

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def run_tool(self, *arguments, record="kernels"):
        result = subprocess.run([sys.executable, TOOL, "--root", self.root, "--record", record, *arguments], text=True, check=False,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return result.returncode, result.stdout

    def fingerprint(self):
        return self.run_tool("--print-fingerprint")[1].strip()

    def write_record(self, **changes):
        record = {"fingerprint": self.fingerprint(), "not_run_because": "", "checked": self.fingerprint(),
                  "commit": "c0ffee", "date": "2026-01-02", "gpu": "NVIDIA H200", "driver": "580.1", "passed": 7,
                  "failed": 0, "steps": [], **changes}
        record = {key: value for key, value in record.items() if value is not None}
        self.write("tests/gpu/record.json", json.dumps(record))

    def read_record(self):
        return json.loads((self.root / "tests/gpu/record.json").read_text())

    def expect_bad(self, *words):
        code, output = self.run_tool()
        self.assertEqual(code, 1, output)
        for word in words:
            self.assertIn(word, output)

    def test_accepts_a_record_of_these_sources(self):
        self.write_record()
        code, output = self.run_tool()
        self.assertEqual(code, 0, output)
        self.assertIn("7 checks passed on NVIDIA H200", output)

    def test_every_source_counts_and_prose_does_not(self):
        before = self.fingerprint()
        self.write("kernels/README.md", "figures")
        self.write("src/mask/x.cc", "elsewhere")
        self.assertEqual(self.fingerprint(), before)
        for name, text in SOURCES.items():
            self.write(name, text + " ")
            self.assertNotEqual(self.fingerprint(), before, name)
            self.write(name, text)
        (self.root / "kernels/a.cuh").rename(self.root / "kernels/b.cuh")
        self.assertNotEqual(self.fingerprint(), before)

    def test_refuses_a_stale_record_and_says_what_to_do(self):
        self.write_record()
        self.write("kernels/a.cuh", "changed")
        self.expect_bad("other sources", "scripts/gpu_check", "--stale-because")

    def test_a_reason_holds_for_the_sources_it_was_given_for(self):
        self.write_record()
        checked = self.fingerprint()
        self.write("kernels/a.cuh", "changed")
        code, output = self.run_tool("--stale-because", "no GPU was free")
        self.assertEqual(code, 0, output)
        self.assertIn("no GPU was free", output)
        self.assertEqual(self.read_record()["checked"], checked)
        self.assertEqual(self.run_tool()[0], 0)
        self.write("kernels/a.cuh", "changed again")
        self.expect_bad("other sources")

    def test_refuses_an_empty_reason_and_one_for_checked_sources(self):
        self.write_record()
        self.assertEqual(self.run_tool("--stale-because", "no need")[0], 2)
        self.write("kernels/a.cuh", "changed")
        self.assertEqual(self.run_tool("--stale-because", "  ")[0], 2)
        self.write_record(checked="0" * 64, not_run_because=" ")
        self.expect_bad("does not say why")

    def test_refuses_failures_and_a_run_without_checks(self):
        self.write_record(failed=2)
        self.expect_bad("2 checks failed")
        self.write_record(passed=0)
        self.expect_bad("no check passed")

    def test_refuses_a_run_that_was_ended_early(self):
        self.write_record(unfinished=["core/test_b.py", "ops/test_c.py"])
        self.expect_bad("ended early", "2 did not finish", "core/test_b.py", "scripts/gpu_check")
        self.write_record(unfinished=[])
        self.assertEqual(self.run_tool()[0], 0)

    def test_a_stale_record_names_the_files_of_tests_that_never_ran(self):
        self.write_record()
        for name in ("core/test_a.py", "core/test_b.py", "ops/test_c.py", "ops/helper.py"):
            self.write(f"python/tests/torch/{name}", "tests")
        steps = [{"name": "core/test_a.py", "result": "ok"}, {"name": "ops/test_c.py", "result": "unfinished"}]
        record = {**self.read_record(), "steps": steps, "unfinished": []}
        self.write("python/tests/torch/record.json", json.dumps(record))
        code, output = self.run_tool("--stale-because", "tests were added", record="python")
        self.assertEqual(code, 0, output)
        self.assertIn("core/test_b.py, ops/test_c.py never ran there", output)
        written = json.loads((self.root / "python/tests/torch/record.json").read_text())
        self.assertEqual(written["unfinished"], ["core/test_b.py", "ops/test_c.py"])

    def test_each_record_has_sources_of_its_own(self):
        self.write_record()
        self.write("python/stof/attention.py", "p")
        record = {**self.read_record(), "passed": 9}
        self.assertEqual(self.run_tool()[0], 0)
        code, output = self.run_tool(record="python")
        self.assertEqual(code, 1, output)
        self.assertIn("python/tests/torch/run", output)
        record["fingerprint"] = record["checked"] = self.run_tool("--print-fingerprint", record="python")[1].strip()
        self.write("python/tests/torch/record.json", json.dumps(record))
        everything = [sys.executable, TOOL, "--root", self.root]
        self.assertEqual(subprocess.run(everything, check=False, stdout=subprocess.DEVNULL).returncode, 0)
        self.write("python/stof/attention.py", "changed")
        self.assertEqual(self.run_tool()[0], 0)
        self.assertEqual(subprocess.run(everything, check=False, stderr=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL).returncode, 1)

    def test_names_what_is_wrong_with_the_record(self):
        self.expect_bad("there is none")
        self.write("tests/gpu/record.json", "{")
        self.expect_bad("not JSON")
        self.write_record(gpu=None)
        self.expect_bad('"gpu"')
        self.write_record(passed=True)
        self.expect_bad('"passed"')
        self.write_record(checked="abc")
        self.expect_bad("64 hexadecimal digits")


if __name__ == "__main__":
    unittest.main()
