"""What python/tests/torch/run records of tests that end, crash or are cut off; needs no torch."""

import importlib.machinery
import importlib.util
import json
import pathlib
import sys
import tempfile
import types
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "python/tests/torch/run"


def load():
    loader = importlib.machinery.SourceFileLoader("torch_run", str(SCRIPT))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("torch_run", loader))
    sys.dont_write_bytecode = True
    loader.exec_module(module)
    return module


RUN = load()
PASSED = {"outcome": "passed", "counts": True, "seconds": 1.0}
FAILED = {"outcome": "failed", "counts": True, "seconds": 0.5}
SET_UP = {"outcome": "passed", "counts": False, "seconds": 0.25}


class TorchRun(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def unit(self, name, events, status):
        """A file of tests that wrote these events; status None: its process still runs."""
        unit = RUN.Unit(name, pathlib.Path(self.folder.name), [])
        unit._events.write_text("".join(json.dumps(event) + "\n" for event in events))
        unit._process = types.SimpleNamespace(poll=lambda: status, returncode=status)
        unit.read()
        return unit

    def done(self, status):
        return {"done": status, "versions": {"torch": "2"}}

    def test_a_cut_run_keeps_its_counts_and_says_what_did_not_finish(self):
        first, second, *others = RUN.all_files()
        units = [
            self.unit(first, [SET_UP, PASSED, PASSED, self.done(0)], 0),
            self.unit(second, [PASSED], None),
        ]
        record = RUN.record_of(units, "c0ffee", False)
        self.assertEqual((record["passed"], record["failed"]), (3, 0))
        self.assertEqual(record["unfinished"], [second, *others])
        self.assertEqual([step["result"] for step in record["steps"]], ["ok", "unfinished"])
        self.assertEqual(record["steps"][0]["seconds"], 2.2)
        self.assertEqual(record["torch"], "2")

    def test_a_whole_run_is_one_of_every_file_and_test(self):
        units = [self.unit(name, [PASSED, self.done(0)], 0) for name in RUN.all_files()]
        self.assertEqual(RUN.record_of(units, "c0ffee", False)["unfinished"], [])
        self.assertEqual(RUN.record_of(units, "c0ffee", True)["unfinished"], RUN.all_files())

    def test_a_crash_counts_as_a_failure_and_no_chosen_test_does_not(self):
        self.assertEqual(self.unit("a/test_a.py", [PASSED], -11).counts["failed"], 1)
        self.assertEqual(self.unit("a/test_b.py", [FAILED, self.done(1)], 1).counts["failed"], 1)
        self.assertEqual(self.unit("a/test_c.py", [self.done(4)], 4).counts["failed"], 1)
        self.assertEqual(self.unit("a/test_d.py", [self.done(5)], 5).counts["failed"], 0)

    def test_reads_whole_lines_only(self):
        unit = self.unit("a/test_a.py", [PASSED], None)
        with open(unit._events, "a", encoding="utf-8") as file:
            file.write('{"outcome": "pas')
        unit.read()
        self.assertEqual(unit.counts["passed"], 1)
        with open(unit._events, "a", encoding="utf-8") as file:
            file.write('sed", "counts": true, "seconds": 0}\n')
        unit.read()
        self.assertEqual(unit.counts["passed"], 2)

    def test_takes_folders_files_and_options(self):
        files, options = RUN.chosen(["core", "-k", "vmap", "-x"])
        self.assertEqual(
            list(files), [name for name in RUN.all_files() if name.startswith("core/")]
        )
        self.assertEqual(options, ["-k", "vmap", "-x"])
        files, options = RUN.chosen([])
        self.assertEqual(sorted(files), RUN.all_files())


if __name__ == "__main__":
    unittest.main()
