"""The shared library exports the functions that stof.h and models.h declare, and nothing else."""

import argparse
import pathlib
import re
import subprocess
import sys

FUNCTION = re.compile(r"^(?:stof_status|void|const char\*) (stof_\w+)\(", re.MULTILINE)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nm", required=True)
    parser.add_argument("--library", dest="shared_library", required=True)
    parser.add_argument("--header", type=pathlib.Path, nargs="+", required=True)
    options = parser.parse_args()
    texts = [header.read_text(encoding="utf-8") for header in options.header]
    declared = {name for text in texts for name in FUNCTION.findall(text)}
    headers = " and ".join(header.name for header in options.header)
    listing = subprocess.run([options.nm, "--dynamic", "--defined-only", options.shared_library], check=True,
                             stdout=subprocess.PIPE, text=True).stdout
    exported = {line.split()[-1] for line in listing.splitlines()}
    for name in sorted(exported - declared):
        print(f"exported, but not declared in {headers}: {name}")
    for name in sorted(declared - exported):
        print(f"declared in {headers}, but not exported: {name}")
    print(f"{len(declared)} functions declared, {len(exported)} symbols exported")
    return 0 if declared and declared == exported else 1


if __name__ == "__main__":
    sys.exit(main())
