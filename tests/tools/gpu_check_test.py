"""Runs scripts/gpu_check on folders of small scripts that behave like GPU programs, good and bad."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "gpu_check"
sys.path.insert(0, str(ROOT / "tools"))
import check_gpu_record  # noqa: E402

GOOD_CHECK = 'echo working; echo "12 passed, 0 failed on a GPU"'
BENCH = r'''echo timing; printf '{"mask":"causal","us":1.5,"good":true}\n{"mask":"dense","us":2' >> "$2"'''


class GpuCheck(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.bin, self.out = pathlib.Path(folder.name) / "bin", pathlib.Path(folder.name) / "out"
        tools = pathlib.Path(folder.name) / "tools"
        tools.mkdir()
        self.bin.mkdir()
        self.stamp(check_gpu_record.fingerprint(ROOT))
        self.program("nvidia-smi", 'echo "NVIDIA H200, 580.1"', tools)
        self.environment = {**os.environ, "PATH": f"{tools}:/usr/bin:/bin"}

    def stamp(self, fingerprint):
        (self.bin / "sources.fingerprint").write_text(fingerprint + "\n")

    def program(self, name, body, folder=None):
        path = (folder or self.bin) / name
        path.write_text("#!/bin/sh\n" + body + "\n")
        path.chmod(0o755)

    def run_script(self, *arguments):
        result = subprocess.run([sys.executable, SCRIPT, "--bin", self.bin, "--out", self.out, "--sanitizer", "",
                                 *arguments], text=True,
                                check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=self.environment)
        return result.returncode, result.stdout

    def record(self):
        return json.loads((self.out / "record.json").read_text())

    def results(self):
        lines = (self.out / "checks.jsonl").read_text().splitlines()
        return {line["name"]: line for line in map(json.loads, lines)}

    def test_leaves_a_record_that_the_check_accepts(self):
        self.program("attention_gpu_check", GOOD_CHECK)
        self.program("bench_gpu_attention", BENCH)
        code, output = self.run_script("--commit", "c0ffee")
        self.assertEqual(code, 0, output)
        record = self.record()
        self.assertEqual((record["passed"], record["failed"]), (13, 0))
        self.assertEqual((record["gpu"], record["driver"], record["commit"]), ("NVIDIA H200", "580.1", "c0ffee"))
        self.assertTrue(check_gpu_record.judge(record, check_gpu_record.fingerprint(ROOT))[0])
        self.assertEqual(set(check_gpu_record.FIELDS) - set(record), set())
        measured = [json.loads(line) for line in (self.out / "bench.jsonl").read_text().splitlines()]
        self.assertEqual(len(measured), 1)  # the line cut short is left out
        self.assertEqual((measured[0]["mask"], measured[0]["gpu"], measured[0]["commit"]),
                         ("causal", "NVIDIA H200", "c0ffee"))

    def test_leaves_a_record_of_checks_without_benchmarks(self):
        self.program("attention_gpu_check", GOOD_CHECK)
        self.program("bench_gpu_attention", "exit 1")
        code, output = self.run_script("--no-bench")
        self.assertEqual(code, 0, output)
        self.assertEqual([step["name"] for step in self.record()["steps"]], ["attention"])

    def test_counts_failures_crashes_and_programs_that_count_nothing(self):
        self.program("a_gpu_check", 'echo "3 passed, 2 failed on a GPU"; exit 1')
        self.program("b_gpu_check", "kill -SEGV $$")
        self.program("c_gpu_check", "echo all fine")
        self.program("d_gpu_check", GOOD_CHECK)
        code, output = self.run_script()
        self.assertEqual(code, 1, output)
        results = self.results()
        self.assertEqual([results[name]["failed"] for name in "abcd"], [2, 1, 1, 0])
        self.assertEqual(results["d"]["result"], "ok")
        self.assertEqual((self.record()["passed"], self.record()["failed"]), (15, 4))

    def test_ends_what_takes_too_long_and_keeps_the_rest(self):
        self.program("a_gpu_check", "echo begun; sleep 60")
        self.program("b_gpu_check", GOOD_CHECK)
        code, output = self.run_script("--seconds", "2")
        self.assertEqual(code, 1, output)
        self.assertEqual(self.results()["a"]["result"], "timed out")
        self.assertIn("begun", output)
        self.assertIn("out of time", self.results()["b"]["result"])

    def test_runs_checks_together_and_the_runtime_check_alone(self):
        meet = 'cd "$(dirname "$0")"; touch here.{me}; for i in $(seq 100); do [ -e here.{other} ] && break; sleep 0.1; done; ' \
               '[ -e here.{other} ] || exit 1; sleep 0.3; rm here.{me}; ' + GOOD_CHECK
        self.program("a_gpu_check", meet.format(me="a", other="b"))
        self.program("b_gpu_check", meet.format(me="b", other="a").replace("rm here.b", "sleep 0.2; rm here.b"))
        self.program("runtime_gpu_check", f'cd "$(dirname "$0")"; ls here.* && exit 1; {GOOD_CHECK}')
        code, output = self.run_script("--workers", "2")
        self.assertEqual(code, 0, output)
        self.assertEqual(self.record()["passed"], 36)

    def test_a_selection_leaves_no_record(self):
        self.program("a_gpu_check", GOOD_CHECK)
        self.program("b_gpu_check", "exit 1")
        code, output = self.run_script("--only", "a")
        self.assertEqual(code, 0, output)
        self.assertFalse((self.out / "record.json").exists())
        code, output = self.run_script("--only", "nothing")
        self.assertNotEqual(code, 0)
        self.assertIn("expected one of a, b", output)

    def test_runs_a_small_set_under_the_sanitizer(self):
        self.program("attention_gpu_check", GOOD_CHECK)
        self.program("sanitizer", 'shift 4; exec "$@"')
        code, output = self.run_script("--sanitizer", str(self.bin / "sanitizer"))
        self.assertEqual(code, 0, output)
        self.assertEqual(set(self.results()), {"attention", "memcheck_attention", "racecheck_sm80", "racecheck_rowwise"})

    def test_counts_no_failure_where_the_sanitizer_cannot_work(self):
        self.program("attention_gpu_check", GOOD_CHECK)
        self.program("sanitizer", "echo Error: Device not supported; exit 1")
        code, output = self.run_script("--sanitizer", str(self.bin / "sanitizer"))
        self.assertEqual(code, 0, output)
        self.assertEqual(self.results()["memcheck_attention"]["result"], "not possible on this machine")

    def test_refuses_programs_of_other_sources_and_a_machine_without_gpu(self):
        self.program("a_gpu_check", GOOD_CHECK)
        self.environment["PATH"] = str(self.bin)
        code, output = self.run_script()
        self.assertEqual(code, 2)
        self.assertIn("no NVIDIA GPU", output)
        self.stamp("0" * 64)
        code, output = self.run_script()
        self.assertEqual(code, 2)
        self.assertIn("--build-only", output)


if __name__ == "__main__":
    unittest.main()
