"""Runs tools/gpu_bundle.py on a folder that looks like a build, with programs of the system for ours."""

import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOL = ROOT / "tools" / "gpu_bundle.py"
sys.path.insert(0, str(ROOT / "tools"))
import check_gpu_record  # noqa: E402


class GpuBundle(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.build, self.out = pathlib.Path(folder.name) / "build", pathlib.Path(folder.name) / "out"
        self.build.mkdir()

    def program(self, name):
        path = self.build / name
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(shutil.which("cmake"), path)  # linked with libraries other than the C library

    def run_tool(self, *arguments):
        result = subprocess.run([sys.executable, TOOL, "--build", self.build, "--out", self.out, *arguments], text=True,
                                check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return result.returncode, result.stdout

    def test_takes_gpu_programs_their_libraries_and_the_fingerprint(self):
        self.program("tests/gpu/x_gpu_check")
        self.program("bench/gpu/bench_gpu_y")
        self.program("tests/core_tests")
        self.out.mkdir()
        (self.out / "old_gpu_check").write_text("of an earlier build")
        code, output = self.run_tool()
        self.assertEqual(code, 0, output)
        names = {path.name for path in self.out.iterdir()}
        self.assertLessEqual({"x_gpu_check", "bench_gpu_y", "sources.fingerprint"}, names)
        self.assertFalse(names & {"core_tests", "old_gpu_check", "libc.so.6"})
        self.assertTrue(any(name.startswith("libstdc++") for name in names), names)
        stamp = (self.out / "sources.fingerprint").read_text().strip()
        self.assertEqual(stamp, check_gpu_record.fingerprint(ROOT))

    def test_says_what_to_do_where_nothing_was_built(self):
        code, output = self.run_tool()
        self.assertEqual(code, 2)
        self.assertIn("--build-only", output)


if __name__ == "__main__":
    unittest.main()
