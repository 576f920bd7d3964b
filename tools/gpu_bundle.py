#!/usr/bin/env python3
"""Collects what scripts/gpu_check runs in one flat folder that can be carried to a machine with a GPU.

Takes the GPU programs of a build (*_gpu_check, bench_gpu_*), strips them, adds the shared libraries they need other
than the C library's, and writes sources.fingerprint (tools/check_gpu_record.py), by which gpu_check knows that the
programs were built from the sources beside it.
"""

import argparse
import pathlib
import re
import shutil
import subprocess
import sys

import check_gpu_record

# Every Linux machine with a GPU driver has these.
SYSTEM_LIBRARIES = re.compile(r"(libc|libm|libdl|libpthread|librt|ld-linux-x86-64)\.so")
PROGRAM_PATTERNS = ("tests/gpu/*_gpu_check", "bench/gpu/bench_gpu_*")


def shared_libraries(program):
    """Paths of the libraries the loader gives the program."""
    listing = subprocess.run(["ldd", program], check=True, text=True, stdout=subprocess.PIPE).stdout
    if "not found" in listing:
        raise SystemExit(f"{program}: a library is missing:\n{listing}")
    return [pathlib.Path(path) for path in re.findall(r"=> (/\S+)", listing)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, required=True, help="a build folder, such as build/cpu-release")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="the folder to fill; emptied first")
    parser.add_argument("--cli", action="store_true", help="also take stof itself (with oneDNN, 40 MB)")
    options = parser.parse_args()

    programs = [path for pattern in PROGRAM_PATTERNS for path in sorted(options.build.glob(pattern)) if path.is_file()]
    if not programs:
        print(f"{options.build}: no GPU programs; build them first: scripts/gpu_check --build-only", file=sys.stderr)
        return 2
    if options.cli:
        programs.append(options.build / "cli" / "stof")
    shutil.rmtree(options.out, ignore_errors=True)
    options.out.mkdir(parents=True)
    for program in programs:
        target = options.out / program.name
        subprocess.run(["strip", "-o", target, program], check=True)
        for library in shared_libraries(program):
            if not SYSTEM_LIBRARIES.match(library.name):
                shutil.copy(library.resolve(), options.out / library.name)
    (options.out / "sources.fingerprint").write_text(check_gpu_record.fingerprint(check_gpu_record.ROOT) + "\n")
    size = sum(path.stat().st_size for path in options.out.iterdir())
    print(f"{options.out}: {len(programs)} programs, {size / 2**20:.1f} MiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
