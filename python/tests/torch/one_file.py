"""Runs pytest on one file of tests for `run`, and writes what became of each test, line by line.

usage: one_file.py EVENTS [pytest's arguments] (the environment is that which `run` gives)

Lines of EVENTS are JSON: {"outcome": ..., "counts": whether it is one test's, "seconds": ...}, at last
{"done": pytest's exit status, "versions": {...}}. A file without the last line was ended from outside.
"""

import json
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]


class Reporter:
    """A pytest plugin."""

    def __init__(self, file):
        self._file = file

    def write(self, **event):
        self._file.write(json.dumps(event) + "\n")
        self._file.flush()

    def pytest_runtest_logreport(self, report):
        counts = report.when == "call" or report.outcome != "passed"
        self.write(outcome=report.outcome, counts=counts, seconds=report.duration)

    def pytest_collectreport(self, report):
        if report.outcome == "failed":
            self.write(outcome="failed", counts=True, seconds=0.0)


def main():
    sys.path[:0] = [str(ROOT / "python"), str(HERE)]
    sys.dont_write_bytecode = True
    import pytest
    import torch

    import stof

    with open(sys.argv[1], "a", encoding="utf-8") as file:
        reporter = Reporter(file)
        fixed = ["-q", "--show-capture=no", "-p", "no:cacheprovider", "--rootdir", str(HERE)]
        status = int(pytest.main([*fixed, *sys.argv[2:]], plugins=[reporter]))
        versions = {
            "python": sys.version.split()[0],
            "stof": stof.__version__,
            "torch": torch.__version__,
        }
        if "transformers" in sys.modules:
            versions["transformers"] = sys.modules["transformers"].__version__
        reporter.write(done=status, versions=versions)
    return status


if __name__ == "__main__":
    sys.exit(main())
