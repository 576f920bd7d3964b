"""Runs scripts/setup with made-up dpkg-query, apt-get, apt-cache, id and sudo first on PATH."""

import os
import pathlib
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SETUP = ROOT / "scripts" / "setup"


def packages_of(*groups):
    """First alternative of each package of the groups."""
    lines = (ROOT / "scripts" / "packages.txt").read_text().splitlines()
    fields = [line.split() for line in lines if line and not line.startswith("#")]
    return [f[1].split("|")[0] for f in fields if f[0] in groups]


class Setup(unittest.TestCase):
    def run_setup(self, *arguments, installed=(), available=None, user=0, sudo="exit 1", apt_get="exit 0"):
        """Returns (exit code, output, calls of apt-get)."""
        with tempfile.TemporaryDirectory() as folder:
            calls = pathlib.Path(folder) / "calls"
            known = "exit 0" if available is None else f'case " {" ".join(available)} " in *" $3 "*) ;; *) exit 1 ;; esac'
            programs = {
                "dpkg-query": "".join(f"echo {name} installed\n" for name in installed),
                "apt-cache": known,
                "apt-get": f'echo "$*" >> {calls}; {apt_get}',
                "id": f"echo {user}",
                "sudo": sudo,
            }
            for name, body in programs.items():
                program = pathlib.Path(folder) / name
                program.write_text(f"#!/bin/sh\n{body}\n")
                program.chmod(0o755)
            result = subprocess.run([SETUP, *arguments], text=True, stdin=subprocess.DEVNULL, check=False,
                                    env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"},
                                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            return result.returncode, result.stdout, calls.read_text() if calls.exists() else ""

    def test_does_nothing_when_all_is_there(self):
        everything = packages_of("build", "test")
        self.assertEqual(self.run_setup("--build", "--test", installed=everything), (0, "", ""))

    def test_installs_just_what_is_missing(self):
        there = [name for name in packages_of("build") if name not in ("cmake", "libfmt-dev")]
        code, output, calls = self.run_setup("--build", installed=there)
        self.assertEqual(code, 0, output)
        self.assertTrue(calls.splitlines()[-1].endswith("--no-install-recommends cmake libfmt-dev"), calls)

    def test_takes_the_alternative_that_the_release_has(self):
        wanted = [name for name in packages_of("test") if name != "libclang-rt-dev"]
        code, output, calls = self.run_setup("--test", installed=wanted, available=["libclang-common-14-dev"])
        self.assertEqual(code, 0, output)
        self.assertTrue(calls.splitlines()[-1].endswith(" libclang-common-14-dev"), calls)

    def test_does_without_what_the_release_may_lack(self):
        wanted = [name for name in packages_of("test") if name not in ("clang-format-14", "clang-tidy-14")]
        code, output, calls = self.run_setup("--test", installed=wanted, available=["none"])
        self.assertEqual(code, 0, output)
        self.assertNotIn("install", calls)

    def test_names_a_package_that_does_not_exist(self):
        there = [name for name in packages_of("build") if name != "libdnnl-dev"]
        code, output, calls = self.run_setup("--build", installed=there, available=["cmake"])
        self.assertEqual(code, 2, output)
        self.assertIn("no such package here: libdnnl-dev", output)
        self.assertIn("update", calls)  # only after fresh lists

    def test_prints_the_command_when_root_is_out_of_reach(self):
        code, output, calls = self.run_setup("--build", user=1000)
        self.assertEqual((code, calls), (2, ""), output)
        self.assertIn("apt-get install -y --no-install-recommends cmake ninja-build g++", output)

    def test_uses_sudo_that_asks_no_password(self):
        code, output, calls = self.run_setup("--build", user=1000, sudo='[ "$1" = -n ] && shift; exec "$@"')
        self.assertEqual(code, 0, output)
        self.assertIn("--no-install-recommends cmake", calls)

    def test_says_that_the_lists_are_stale_when_no_source_can_be_reached(self):
        there = [name for name in packages_of("build") if name != "libdnnl-dev"]
        offline = 'case "$1 $*" in update*--error-on=any*) exit 100 ;; esac'
        code, output, calls = self.run_setup("--build", installed=there, available=["cmake"], apt_get=offline)
        self.assertEqual(code, 1, output)
        self.assertIn("could not be updated", output)
        self.assertIn("libdnnl-dev", output)
        self.assertNotIn("no such package", output)
        self.assertNotIn("install -y", calls)

    def test_fails_when_apt_fails(self):
        code, output, _ = self.run_setup("--build", apt_get='[ "$1" = update ]')
        self.assertEqual(code, 1, output)
        self.assertIn("apt-get could not install", output)

    def test_refuses_an_option_it_does_not_know(self):
        code, output, _ = self.run_setup("--biuld")
        self.assertEqual(code, 2, output)
        self.assertIn("--biuld", output)


if __name__ == "__main__":
    unittest.main()
