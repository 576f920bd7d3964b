"""The mirror of stof/stof.h against the header itself."""

import ctypes
import os
import re
from pathlib import Path

import pytest
import stof
from stof._native import library, structs

ROOT = Path(__file__).resolve().parents[2]
HEADER = re.sub(r"/\*.*?\*/", "", (ROOT / "include/stof/stof.h").read_text(), flags=re.S)

NUMBERS = {
    "int32_t": ctypes.c_int32,
    "uint32_t": ctypes.c_uint32,
    "int64_t": ctypes.c_int64,
    "float": ctypes.c_float,
    "double": ctypes.c_double,
}


def fields(body):
    """(name, type) of each member; "*" for pointers."""
    for declaration in filter(None, (d.strip() for d in body.split(";"))):
        kind, names = re.match(r"(?:const )?(?:struct )?(\w+)(.*)", declaration, re.S).groups()
        for name in names.split(","):
            pointer = "*" in name
            yield re.sub(r"[\s*]|const", "", name), "*" if pointer else kind


def struct_of(name):
    camel = "".join(part.capitalize() for part in name.removeprefix("stof_").split("_"))
    for module in (structs, structs_gpu):
        if hasattr(module, camel):
            return getattr(module, camel)
    return None


structs_gpu = pytest.importorskip("stof._native.structs_gpu")
STRUCTS = dict(re.findall(r"typedef struct (\w+) \{(.*?)\} \w+;", HEADER, re.S))


@pytest.mark.parametrize("name", STRUCTS)
def test_structs_have_the_header_s_fields(name):
    mirror = struct_of(name)
    assert mirror is not None, f"no mirror of {name}"
    expected = list(fields(STRUCTS[name]))
    assert [field for field, _ in mirror._fields_][: len(expected)] == [f for f, _ in expected]
    for (field, kind), (_, mirrored) in zip(expected, mirror._fields_):
        if kind == "*":
            assert ctypes.sizeof(mirrored) == ctypes.sizeof(ctypes.c_void_p), field
        else:
            assert mirrored is NUMBERS[kind], field


def test_every_function_is_declared():
    names = set(re.findall(r"\b(stof_\w+)\(", HEADER))
    loaded = library()
    undeclared = {n for n in names if getattr(loaded, n).argtypes is None} - {"stof_status_name"}
    assert not undeclared


def test_constants():
    for enum in re.findall(r"enum \{(.*?)\}", HEADER, re.S):
        for name, value in re.findall(r"STOF_(\w+) = (\d+)", enum):
            known = getattr(structs, name, None)
            assert known in (None, int(value)), name
    assert [structs.DTYPE_CODES[n] for n in ("float32", "bool", "int64")] == [0, 6, 14]


def test_the_version_is_the_project_s():
    stated = re.search(r"stof VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text()).group(1)
    assert stof.__version__ == stated


@pytest.mark.skipif("STOF_TESTED_WHEEL" not in os.environ, reason="not run by python/tests/run")
def test_the_wheel_needs_nothing_of_the_machine_but_glibc():
    import subprocess
    import zipfile

    with zipfile.ZipFile(os.environ["STOF_TESTED_WHEEL"]) as wheel:
        files = set(wheel.namelist())
    libraries = {f for f in files if ".so" in f}
    assert libraries == {"stof/_native/libstof_c.so", "stof/_native/libgomp.so.1"}
    assert "stof/py.typed" in files and not any(f.endswith((".a", ".h", ".cmake")) for f in files)
    loaded = Path(stof.__file__).parent / "_native/libstof_c.so"
    dynamic = subprocess.run(["readelf", "-d", loaded], capture_output=True, text=True, check=True)
    needed = set(re.findall(r"NEEDED.*\[(.*)\]", dynamic.stdout))
    glibc = {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "ld-linux-x86-64.so.2"}
    assert needed - glibc == {"libgomp.so.1"}


def test_a_library_that_is_not_there_is_named(tmp_path):
    import subprocess
    import sys

    missing = tmp_path / "libstof_c.so"
    done = subprocess.run(
        [sys.executable, "-c", "import stof"],
        env={**os.environ, "STOF_LIBRARY": str(missing)},
        capture_output=True,
        text=True,
    )
    assert (
        done.returncode == 1 and f"{missing} of $STOF_LIBRARY, which does not exist" in done.stderr
    )
    missing.write_bytes(b"no library")
    done = subprocess.run(
        [sys.executable, "-c", "import stof"],
        env={**os.environ, "STOF_LIBRARY": str(missing)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1 and "cannot be loaded" in done.stderr
