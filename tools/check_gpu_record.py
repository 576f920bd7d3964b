#!/usr/bin/env python3
"""Says whether tests/gpu/record.json, the record of the last run on a GPU, speaks for the sources as they are.

The record names the sources it speaks for by a fingerprint: sha256 over lines "<sha256>  <path>" of every source file
under FOLDERS, sorted by the path's bytes. CI has no GPU; with this check a change of GPU code cannot pass without
somebody running scripts/gpu_check on one, or writing down why that was not done.
"""

import argparse
import hashlib
import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
RECORD = "tests/gpu/record.json"

# What decides a GPU's results, and the endings that are not prose.
FOLDERS = ("kernels", "src/plan", "src/codegen", "src/backend/cuda")
SUFFIXES = {".h", ".cc", ".cuh", ".json"}

# Field of the record -> its type. "checked" is what the last run on a GPU saw, "fingerprint" what the record
# speaks for: they differ only where "not_run_because" says why.
FIELDS = {"fingerprint": str, "not_run_because": str, "checked": str, "commit": str, "date": str, "gpu": str,
          "driver": str, "passed": int, "failed": int, "steps": list}
HEX = re.compile(r"[0-9a-f]{64}")


def fingerprint(root):
    """Fingerprint of the sources under root, 64 hexadecimal digits."""
    files = [path for folder in FOLDERS for path in (root / folder).rglob("*")
             if path.suffix in SUFFIXES and path.is_file()]
    names = sorted((path.relative_to(root).as_posix() for path in files), key=lambda name: name.encode())
    digest = hashlib.sha256()
    for name in names:
        digest.update(f"{hashlib.sha256((root / name).read_bytes()).hexdigest()}  {name}\n".encode())
    return digest.hexdigest()


def read_record(root):
    """The record, or (None, what is wrong with it)."""
    path = root / RECORD
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None, "there is none"
    except ValueError as error:
        return None, f"is not JSON: {error}"
    if not isinstance(record, dict):
        return None, "is not a JSON object"
    for field, kind in FIELDS.items():
        if not isinstance(record.get(field), kind) or isinstance(record.get(field), bool):
            return None, f'"{field}": expected {kind.__name__}, got {record.get(field)!r}'
    for field in ("fingerprint", "checked"):
        if not HEX.fullmatch(record[field]):
            return None, f'"{field}": expected 64 hexadecimal digits, got {record[field]!r}'
    return record, ""


def write_record(root, record):
    path = root / RECORD
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(record, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    temporary.replace(path)


ADVICE = ("run scripts/gpu_check on a machine with a GPU and copy the record.json it leaves to " + RECORD +
          ', or say why that cannot be done now: tools/check_gpu_record.py --stale-because "..."')


def judge(record, current):
    """(whether the record is good, one sentence)."""
    where = f"{record['gpu']}, {record['date']}, commit {record['commit']}"
    if record["fingerprint"] != current:
        return False, f"speaks for other sources than these ({where}); {ADVICE}"
    if record["checked"] != current:
        if not record["not_run_because"].strip():
            return False, f"was not made from these sources ({where}) and does not say why; {ADVICE}"
        return True, f"these sources were not run on a GPU: {record['not_run_because']} (last run: {where})"
    if record["failed"] > 0:
        return False, f"{record['failed']} checks failed on {where}; mend them, then {ADVICE}"
    if record["passed"] == 0:
        return False, f"no check passed on {where}; {ADVICE}"
    return True, f"{record['passed']} checks passed on {where}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=pathlib.Path, default=ROOT, help="the source tree (default: this one)")
    parser.add_argument("--print-fingerprint", action="store_true", help="print the sources' fingerprint and stop")
    parser.add_argument("--stale-because", metavar="TEXT",
                        help="let the record speak for the sources as they are, unrun, for this reason")
    options = parser.parse_args()
    current = fingerprint(options.root)
    if options.print_fingerprint:
        print(current)
        return 0
    record, problem = read_record(options.root)
    if record is None:
        print(f"{RECORD}: {problem}; {ADVICE}", file=sys.stderr)
        return 1
    if options.stale_because is not None:
        if not options.stale_because.strip():
            print("--stale-because: expected a reason, got none", file=sys.stderr)
            return 2
        if record["checked"] == current:
            print(f"{RECORD}: was made from these very sources; there is nothing to excuse", file=sys.stderr)
            return 2
        record["fingerprint"] = current
        record["not_run_because"] = options.stale_because.strip()
        write_record(options.root, record)
    good, sentence = judge(record, current)
    print(f"{RECORD}: {sentence}", file=sys.stdout if good else sys.stderr)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
