#!/usr/bin/env python3
"""Says whether the records of the last runs on a GPU speak for the sources as they are.

A record names the sources it speaks for by a fingerprint: sha256 over lines "<sha256>  <path>" of every source file
under its folders, sorted by the path's bytes. CI has no GPU; with this check a change of GPU code cannot pass without
somebody running the record's script on one, or writing down why that was not done.
"""

import argparse
import dataclasses
import hashlib
import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


@dataclasses.dataclass(frozen=True)
class Record:
    """What a run on a GPU left in the repository, and the sources that decided its results."""
    path: str
    script: str  # makes it
    folders: tuple
    suffixes: frozenset  # endings that are not prose
    tests: str = ""  # files that are each a step of the script, named from the record's folder on; empty: not files


RECORDS = {
    "kernels": Record("tests/gpu/record.json", "scripts/gpu_check",
                      ("kernels", "src/plan", "src/codegen", "src/backend/cuda"),
                      frozenset((".h", ".cc", ".cuh", ".json"))),
    "python": Record("python/tests/torch/record.json", "python/tests/torch/run",
                     ("python/stof", "python/tests/torch", "src/capi"), frozenset((".h", ".cc", ".py")), "*/test_*.py"),
}

# Field of the record -> its type. "checked" is what the last run on a GPU saw, "fingerprint" what the record
# speaks for: they differ only where "not_run_because" says why.
FIELDS = {"fingerprint": str, "not_run_because": str, "checked": str, "commit": str, "date": str, "gpu": str,
          "driver": str, "passed": int, "failed": int, "steps": list}
HEX = re.compile(r"[0-9a-f]{64}")


def fingerprint(root, record="kernels"):
    """Fingerprint of a record's sources under root, 64 hexadecimal digits."""
    sources = RECORDS[record]
    files = [path for folder in sources.folders for path in (root / folder).rglob("*")
             if path.suffix in sources.suffixes and path.is_file()]
    names = sorted((path.relative_to(root).as_posix() for path in files), key=lambda name: name.encode())
    digest = hashlib.sha256()
    for name in names:
        digest.update(f"{hashlib.sha256((root / name).read_bytes()).hexdigest()}  {name}\n".encode())
    return digest.hexdigest()


def read_record(path):
    """The record, or (None, what is wrong with it)."""
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


def write_record(path, record):
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(record, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    temporary.replace(path)


def unrun(root, name, record):
    """Files of tests that the record has no finished step of; what it says itself where steps are no files."""
    if not RECORDS[name].tests:
        return record.get("unfinished", [])
    folder = (root / RECORDS[name].path).parent
    finished = {step["name"] for step in record["steps"] if step.get("result") != "unfinished"}
    return sorted({path.relative_to(folder).as_posix() for path in folder.glob(RECORDS[name].tests)} - finished)


def advice(name):
    record = RECORDS[name]
    return (f"run {record.script} on a machine with a GPU and copy the record.json it leaves to {record.path}, or say "
            f'why that cannot be done now: tools/check_gpu_record.py --record {name} --stale-because "..."')


def judge(record, current, name="kernels"):
    """(whether the record is good, one sentence)."""
    where = f"{record['gpu']}, {record['date']}, commit {record['commit']}"
    if record["fingerprint"] != current:
        return False, f"speaks for other sources than these ({where}); {advice(name)}"
    if record["checked"] != current:
        if not record["not_run_because"].strip():
            return False, f"was not made from these sources ({where}) and does not say why; {advice(name)}"
        never = record.get("unfinished")
        never = f"; {', '.join(never)} never ran there" if never else ""
        return True, f"these sources were not run on a GPU: {record['not_run_because']} (last run: {where}{never})"
    if record.get("unfinished"):
        names = ", ".join(record["unfinished"][:3])
        return False, (f"is of a run that was ended early or chose some tests: {len(record['unfinished'])} did not "
                       f"finish ({names}...) on {where}; {advice(name)}")
    if record["failed"] > 0:
        return False, f"{record['failed']} checks failed on {where}; mend them, then {advice(name)}"
    if record["passed"] == 0:
        return False, f"no check passed on {where}; {advice(name)}"
    return True, f"{record['passed']} checks passed on {where}"


def check(root, name, reason):
    """Whether the record is good; prints one sentence. With a reason the record is changed first."""
    current = fingerprint(root, name)
    path = root / RECORDS[name].path
    record, problem = read_record(path)
    if record is None:
        print(f"{RECORDS[name].path}: {problem}; {advice(name)}", file=sys.stderr)
        return False
    if reason:
        record["fingerprint"] = current
        record["not_run_because"] = reason
        record["unfinished"] = unrun(root, name, record)
        write_record(path, record)
    good, sentence = judge(record, current, name)
    print(f"{RECORDS[name].path}: {sentence}", file=sys.stdout if good else sys.stderr)
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=pathlib.Path, default=ROOT, help="the source tree (default: this one)")
    parser.add_argument("--record", choices=RECORDS, help="this record only (default: all)")
    parser.add_argument("--print-fingerprint", action="store_true",
                        help="print the fingerprint of the record's sources and stop")
    parser.add_argument("--stale-because", metavar="TEXT",
                        help="let the record speak for the sources as they are, unrun, for this reason")
    options = parser.parse_args()
    if options.record is None and (options.print_fingerprint or options.stale_because is not None):
        parser.error("--record: expected beside --print-fingerprint and --stale-because")
    if options.print_fingerprint:
        print(fingerprint(options.root, options.record))
        return 0
    if options.stale_because is not None:
        if not options.stale_because.strip():
            print("--stale-because: expected a reason, got none", file=sys.stderr)
            return 2
        record, _ = read_record(options.root / RECORDS[options.record].path)
        if record is not None and record["checked"] == fingerprint(options.root, options.record):
            print(f"{RECORDS[options.record].path}: was made from these very sources; there is nothing to excuse",
                  file=sys.stderr)
            return 2
    names = [options.record] if options.record else list(RECORDS)
    results = [check(options.root, name, (options.stale_because or "").strip()) for name in names]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
