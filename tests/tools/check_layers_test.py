"""Plants each kind of violation in a small tree and expects tools/check_layers.py to find just it."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

TOOL = pathlib.Path(__file__).resolve().parents[2] / "tools" / "check_layers.py"

CLEAN_TREE = {
    "include/stof/mask.h": '#pragma once\n#include <vector>\n#include "stof/tensor.h"\n',
    "include/stof/tensor.h": "#pragma once\n#include <cstdint>\n",
    "src/core/env.cc": '#include "core/env.h"\nauto* x = std::getenv("STOF_CACHE");\n',
    "src/core/env.h": "#pragma once\n",
    "src/mask/build.cc": '#include "mask/build.h"\n#include <fmt/format.h>\n#include "core/env.h"\n',
    "src/backend/cuda/driver.cc": "#include <cuda.h>\n",
    "cli/main.cc": '#include "stof/mask.h"\n#include <cstdlib>  // never getenv() here\n',
}


def run_on(files):
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            path = pathlib.Path(folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        result = subprocess.run([sys.executable, TOOL, "--root", folder], text=True, check=False,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return result.returncode, result.stdout


class CheckLayers(unittest.TestCase):
    def expect_violation(self, path, text, line, *words):
        code, output = run_on({**CLEAN_TREE, path: text})
        self.assertEqual(code, 1, output)
        lines = output.splitlines()
        self.assertEqual(len(lines), 2, output)  # the violation and the closing line
        self.assertTrue(lines[0].startswith(f"{path}:{line}: "), output)
        for word in words:
            self.assertIn(word, lines[0])

    def test_accepts_a_clean_tree(self):
        code, output = run_on(CLEAN_TREE)
        self.assertEqual((code, output), (0, f"check_layers: {len(CLEAN_TREE)} files, 0 violations\n"))

    def test_finds_a_lower_layer_that_includes_a_higher_one(self):
        self.expect_violation("src/core/env.h", '#pragma once\n#include "mask/build.h"\n', 2,
                              "core includes mask/build.h of the higher layer mask")

    def test_knows_the_layer_of_public_headers(self):
        self.expect_violation("include/stof/tensor.h", '#include "stof/mask.h"\n', 1, "higher layer mask")
        self.expect_violation("src/core/hash.cc", '#include "stof/attention.h"\n', 1, "stof/attention.h")

    def test_orders_layers_two_folders_deep(self):
        self.expect_violation("src/backend/cpu/a.cc", '#include "backend/cuda/driver.h"\n', 1,
                              "higher layer backend/cuda")

    def test_takes_c_headers_and_the_c_guard_in_the_c_header_alone(self):
        text = "#ifdef __cplusplus\n#endif\n#include <stdint.h>\n"
        code, output = run_on({**CLEAN_TREE, "include/stof/stof.h": text})
        self.assertEqual(code, 0, output)
        self.expect_violation("include/stof/tensor.h", "#include <stdint.h>\n", 1, "stdint.h")
        self.expect_violation("include/stof/tensor.h", "#ifdef __cplusplus\n#endif\n", 1, "conditional")
        self.expect_violation("include/stof/stof.h", "#ifdef STOF_CUDA\n#endif\n", 1, "conditional")
        self.expect_violation("include/stof/stof.h", "#include <fmt/core.h>\n", 1, "fmt/core.h")

    def test_finds_a_third_party_header_in_a_public_one(self):
        self.expect_violation("include/stof/mask.h", "#include <fmt/format.h>\n", 1, "fmt/format.h")
        self.expect_violation("include/stof/mask.h", "#include <stdint.h>\n", 1, "stdint.h")
        self.expect_violation("include/stof/mask.h", '#include "mask/build.h"\n', 1, "mask/build.h")

    def test_finds_a_build_flag_in_a_public_header(self):
        self.expect_violation("include/stof/mask.h", "#pragma once\n#ifdef STOF_WITH_CUDA\n#endif\n", 2,
                              "#ifdef STOF_WITH_CUDA")

    def test_finds_getenv_outside_its_one_file(self):
        self.expect_violation("src/mask/build.cc", 'auto* x = getenv("HOME");\n', 1, "core/env.h")

    def test_finds_a_cuda_header_outside_its_folder(self):
        self.expect_violation("src/jit/compile.cc", "#include <nvrtc.h>\n", 1, "nvrtc.h", "src/backend/cuda")
        self.expect_violation("cli/main.cc", "#include <cuda_runtime.h>\n", 1, "cuda_runtime.h")

    def test_finds_a_file_of_no_layer(self):
        self.expect_violation("src/misc/a.cc", "\n", 1, "belongs to no layer")
        self.expect_violation("include/stof/new.h", "#pragma once\n", 1, "PUBLIC_HEADERS")

    def test_finds_a_long_file(self):
        code, _ = run_on({**CLEAN_TREE, "src/core/a.cc": "\n" * 500})
        self.assertEqual(code, 0)
        self.expect_violation("src/core/a.cc", "\n" * 501, 501, "501 lines")
        self.expect_violation("tests/core/a_test.cc", "\n" * 501, 501, "501 lines")

    def test_refuses_an_empty_tree(self):
        code, output = run_on({"README.md": ""})
        self.assertEqual(code, 2, output)


if __name__ == "__main__":
    unittest.main()
