"""Plants names that clash, and names that do not, and expects tools/check_unity.py to tell them apart."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

TOOL = pathlib.Path(__file__).resolve().parents[2] / "tools" / "check_unity.py"


def in_namespace(text):
    return f"namespace stof {{\nnamespace {{\n\n{text}\n\n}}  // namespace\n}}  // namespace stof\n"


def run_on(files):
    with tempfile.TemporaryDirectory() as folder:
        for name, text in {"cmake/unity_folders.txt": "# These:\nsrc/mask\ncli\n", **files}.items():
            path = pathlib.Path(folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        for listed in ("src/mask", "cli"):
            (pathlib.Path(folder) / listed).mkdir(parents=True, exist_ok=True)
        result = subprocess.run([sys.executable, TOOL, folder], text=True, check=False, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT)
        return result.returncode, result.stdout


class CheckUnity(unittest.TestCase):
    def expect(self, name, first, second, folders=("src/mask", "src/mask")):
        """A clash of that name on line 4 of both; none where name is None."""
        files = {f"{folders[0]}/a.cc": in_namespace(first), f"{folders[1]}/b.cc": in_namespace(second)}
        code, output = run_on(files)
        if name is None:
            self.assertEqual((code, output), (0, ""))
            return
        self.assertEqual(code, 1, output)
        self.assertEqual(len(output.splitlines()), 1, output)
        self.assertTrue(output.startswith(f"{folders[1]}/b.cc:4: "), output)
        self.assertIn(f"got {name}, which {folders[0]}/a.cc:4 has too", output)

    def test_types_constants_and_functions(self):
        self.expect("Header", "struct Header {\n  int x;\n};", "class Header final : Base {\n};")
        self.expect("kMagic", "constexpr char kMagic[8] = {};", "const std::string kMagic = \"x\";")
        self.expect("kLimit", "constexpr int kLimit{3};", "constexpr std::int64_t kLimit = 4;")
        self.expect("join", "int join(const Interval& a, int b) { return a; }",
                    "Interval join(const Interval& first,\n              int second) {\n}")
        self.expect("run", "void run(int a) {\n}", "void run(int a, std::map<int, int> b = {}) {\n}")

    def test_what_may_be_repeated(self):
        self.expect(None, "using I = std::int64_t;", "using I = std::int64_t;")
        self.expect(None, "using testing::HasSubstr;", "using testing::HasSubstr;")
        self.expect(None, "struct Node;", "struct Node;")
        self.expect(None, "void run(int a) {\n}", "void run(int a, std::map<int, int> b) {\n}")
        self.expect(None, "void run(int a) {\n}", "void run(const Options& a) {\n}")
        self.expect(None, "struct Header {\n};", "struct Header {\n};", folders=("src/mask", "src/plan"))
        self.expect(None, "struct Tally {\n};", "struct Tally {\n};", folders=("src/plan", "src/plan"))
        self.expect("Json", "using Json = nlohmann::json;", "using Json = nlohmann::ordered_json;")

    def test_names_that_others_link_to_are_the_linkers_business(self):
        outside = "namespace stof {\nvoid run(int a) {\n}\nstatic int hidden = 1;\n}  // namespace stof\n"
        code, output = run_on({"cli/a.cc": outside, "cli/b.cc": outside})
        self.assertEqual(code, 1)
        self.assertIn("cli/b.cc:4: expected a name of its own, got hidden", output)
        self.assertEqual(len(output.splitlines()), 1, output)


if __name__ == "__main__":
    unittest.main()
