#!/usr/bin/env python3
"""Fetches the data sets of scripts/data_manifest.json into the per-user cache folder.

Each entry is one archive on PyPI, or several ("archives"), pinned by version and sha256, of which some
files are unpacked to <cache>/<to>; a file may be cut over several ("append"). An entry with "terms", a
page among the first archive's files, is fetched only by name and once --accept-terms says that they
were read; without it they are printed. A data set appears there under its final name only when it is complete and verified, so
that a reader never sees half of it; several processes may run this at once. A stamp file beside the
data remembers what was unpacked, which makes later runs quick and finds files that changed since.
"""

import argparse
import contextlib
import errno
import fcntl
import hashlib
import html.parser
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile

MANIFEST = pathlib.Path(__file__).with_name("data_manifest.json")
STAMP = ".stof-stamp.json"
INCOMING = ".incoming-"  # prefix of temporary folders; left-overs are removed under the lock
CHUNK_BYTES = 1 << 20
HINTS = {
    errno.ENOSPC: "; make room or set STOF_CACHE to another folder",
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST),
                    "; set STOF_CACHE to a folder that you may write to"),
}


class FetchError(Exception):
    """What went wrong, for the user: names the file, what was expected, what was got."""


def cache_folder():
    """The same rule as stof::cache_folder() in src/core/env.cc."""
    if os.environ.get("STOF_CACHE"):
        return pathlib.Path(os.environ["STOF_CACHE"])
    if os.environ.get("XDG_CACHE_HOME"):
        return pathlib.Path(os.environ["XDG_CACHE_HOME"]) / "stof"
    if os.environ.get("HOME"):
        return pathlib.Path(os.environ["HOME"]) / ".cache" / "stof"
    return pathlib.Path("/tmp/stof-cache")


def say(text):
    print(f"setup: {text}", file=sys.stderr, flush=True)


def sha256_of(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def check_sha256(what, expected, got):
    if expected != got:
        raise FetchError(f"{what}: expected sha256 {expected}, got {got}; nothing was kept")


def tree_sha256(files):
    """Hash of a folder: sha256 over lines "<sha256>  <path>" in order of the path's bytes."""
    digest = hashlib.sha256()
    for name in sorted(files, key=os.fsencode):
        digest.update(f"{files[name]['sha256']}  {name}\n".encode())
    return digest.hexdigest()


@contextlib.contextmanager
def cache_lock(cache):
    """One process at a time; the others wait, then find the work done."""
    with open(cache / ".lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another process that is filling {cache}")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def archives_of(entry):
    return entry.get("archives", [entry])


def version_of(entry):
    """What of an entry decides the files: hashes of archives and what is unpacked of them."""
    if "archives" not in entry:
        return {"archive_sha256": entry["sha256"], "unpack": entry["unpack"]}
    return {"archive_sha256": [archive["sha256"] for archive in entry["archives"]],
            "unpack": [archive["unpack"] for archive in entry["archives"]]}


def problem_with(folder, entry):
    """Why the data set in `folder` must be fetched, or None when it is whole."""
    try:
        stamp = json.loads((folder / STAMP).read_text())
        if any(stamp[field] != value for field, value in version_of(entry).items()):
            return "is another version"
        for name, known in stamp["files"].items():
            status = (folder / name).stat()
            if status.st_size != known["bytes"]:
                return f"has a damaged file ({name})"
            # Contents are read again only when something wrote to the file since.
            if status.st_mtime_ns != known["mtime_ns"]:
                if sha256_of(folder / name) != known["sha256"]:
                    return f"has a damaged file ({name})"
    except FileNotFoundError as error:
        return f"lacks {pathlib.Path(error.filename).name}" if folder.exists() else "is not there"
    except (ValueError, KeyError, TypeError, AttributeError):
        return "has a damaged stamp"
    return None


def download(entry, folder):
    """Lets pip fetch the archive; pip checks the hash before it looks inside."""
    is_wheel = entry["kind"] == "wheel"
    requirements = folder / "requirements.txt"
    requirements.write_text(f"{entry['package']}=={entry['version']} --hash=sha256:{entry['sha256']}\n")
    on_terminal = sys.stderr.isatty()
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-cache-dir",
               "--disable-pip-version-check", "--require-hashes", "--dest", str(folder),
               "--only-binary" if is_wheel else "--no-binary", ":all:", "-r", str(requirements)]
    command += ["--progress-bar", "on"] if on_terminal else ["--progress-bar", "off", "--quiet"]
    # pip's own temporary files go to the cache's file system too, so that one place must have room.
    result = subprocess.run(command, env={**os.environ, "TMPDIR": str(folder)}, text=True,
                            stdout=sys.stderr, stderr=subprocess.PIPE, check=False)
    archive = folder / entry["file"]
    if result.returncode == 0 and archive.exists():
        check_sha256(entry["file"], entry["sha256"], sha256_of(archive))
        return archive
    got = re.search(r"Got\s+([0-9a-f]{64})", result.stderr)
    if got:
        check_sha256(entry["file"], entry["sha256"], got.group(1))
    if "No space left on device" in result.stderr:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))
    if "No module named pip" in result.stderr:
        raise FetchError("pip is missing: run scripts/setup --build, or install python3-pip")
    sys.stderr.write(result.stderr)
    raise FetchError(f"pip could not download {entry['package']}=={entry['version']} (its words are above); "
                     "check the network and pip's configuration, then start this again")


@contextlib.contextmanager
def open_archive(path):
    """Yields (names, open_member) of a wheel or a source distribution; regular files only."""
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as archive:
            yield [i.filename for i in archive.infolist() if not i.is_dir()], archive.open
    else:
        with tarfile.open(path) as archive:
            members = {m.name: m for m in archive.getmembers() if m.isfile()}
            yield list(members), lambda name: archive.extractfile(members[name])


def wanted_name(member, rules):
    """Where a member of the archive goes inside the data set's folder, and whether behind what is there
    already, or None."""
    for rule in rules:
        if member == rule["from"]:
            return rule["to"], rule.get("append", False)
        prefix = rule["from"] + "/"
        if member.startswith(prefix) and member.endswith(rule.get("suffix", "")):
            return member[len(prefix):], False
    return None


def unpack(archive_path, archive, folder):
    """Writes the wanted members into `folder`; returns their names."""
    names = []
    with open_archive(archive_path) as (members, open_member):
        for member in members:
            wanted = wanted_name(member, archive["unpack"])
            if wanted is None:
                continue
            name, append = wanted
            if pathlib.PurePosixPath(name).is_absolute() or ".." in pathlib.PurePosixPath(name).parts:
                raise FetchError(f"{archive['file']}: member {member} points outside its folder")
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            with open_member(member) as source, open(target, "ab" if append else "wb") as sink:
                shutil.copyfileobj(source, sink, CHUNK_BYTES)
            names.append(name)
    return names


def verified(entry, folder, names):
    """{name: {bytes, sha256, mtime_ns}} of what was unpacked."""
    files = {}
    for name in dict.fromkeys(names):
        status = (folder / name).stat()
        files[name] = {"bytes": status.st_size, "sha256": sha256_of(folder / name),
                       "mtime_ns": status.st_mtime_ns}
    source = archives_of(entry)[-1]["file"]
    for name, expected in entry["files"].items():
        if name not in files:
            raise FetchError(f"{source}: expected a file {name} inside, found none")
        check_sha256(f"{name} in {source}", expected, files[name]["sha256"])
    check_sha256(f"the {len(files)} files of {source}", entry["tree_sha256"], tree_sha256(files))
    return files


class PageText(html.parser.HTMLParser):
    """The words of a page's article, a line for each block of it."""

    BLOCKS = ("p", "li", "h1", "h2", "h3", "br")

    def __init__(self):
        super().__init__()
        self.inside, self.text = False, ""

    def handle_starttag(self, tag, attrs):
        self.inside = self.inside or tag == "h1"
        if tag in self.BLOCKS:
            self.text += "\n"

    def handle_endtag(self, tag):
        self.inside = self.inside and tag != "article"

    def handle_data(self, data):
        if self.inside:
            self.text += " ".join(data.split()) + " " if data.strip() else ""


def show_terms(cache, entry):
    """Prints them from the first archive, which is small."""
    archive = archives_of(entry)[0]
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=INCOMING, dir=cache) as temporary:
        temporary = pathlib.Path(temporary)
        unpack(download(archive, temporary), archive, temporary)
        page = PageText()
        page.feed((temporary / entry["terms"]).read_text(encoding="utf-8"))
    print("\n".join(line.strip() for line in page.text.split("\n") if line.strip()))
    say(f"{entry['name']} is under these terms: {entry['licence']}. Nothing was fetched; if you accept them, "
        "start this again with --accept-terms")


def require_space(cache, entry):
    largest = max(archive["archive_bytes"] for archive in archives_of(entry))  # one after the other
    needed = largest * 2 + entry["unpacked_bytes"]  # pip keeps a second copy for a while
    free = shutil.disk_usage(cache).free
    if free < needed:
        raise FetchError(f"{cache}: {entry['name']} needs {needed / 1e6:.0f} MB of disk, {free / 1e6:.0f} MB "
                         "are free; make room or set STOF_CACHE to another folder")


def fetch(cache, entry):
    target = cache / entry["to"]
    require_space(cache, entry)
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix=INCOMING, dir=cache) as temporary:
        temporary = pathlib.Path(temporary)
        fresh = temporary / "unpacked"
        fresh.mkdir()
        names = []
        for archive in archives_of(entry):
            say(f"fetching {entry['name']}: {archive['file']}, {archive['archive_bytes'] / 1e6:.1f} MB, from PyPI")
            path = download(archive, temporary)
            names += unpack(path, archive, fresh)
            path.unlink()
        files = verified(entry, fresh, names)
        stamp = {**version_of(entry), "files": files}
        (fresh / STAMP).write_text(json.dumps(stamp, indent=1) + "\n")
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.exists():
            target.rename(temporary / "old")  # goes with the temporary folder
        fresh.rename(target)
    say(f"{entry['name']} is in {target} ({len(files)} files, {time.monotonic() - started:.0f} s)")


def ensure(cache, entries):
    pending = [(e, p) for e in entries if (p := problem_with(cache / e["to"], e))]
    if not pending:
        return
    cache.mkdir(parents=True, exist_ok=True)
    with cache_lock(cache):
        for left_over in cache.glob(INCOMING + "*"):
            shutil.rmtree(left_over, ignore_errors=True)
        for entry, _ in pending:
            problem = problem_with(cache / entry["to"], entry)
            if problem is None:
                continue  # another process was quicker
            if problem != "is not there":
                say(f"{cache / entry['to']} {problem}: fetching it again")
            fetch(cache, entry)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("groups", nargs="*", metavar="GROUP", help="model, corpus, compiler (default: all without terms), gemma")
    parser.add_argument("--accept-terms", action="store_true", help="of the groups named")
    parser.add_argument("--manifest", type=pathlib.Path, default=MANIFEST, help="default: %(default)s")
    parser.add_argument("--print-cache", action="store_true", help="print the cache folder and stop")
    options = parser.parse_args()
    cache = cache_folder()
    if options.print_cache:
        print(cache)
        return 0
    entries = json.loads(options.manifest.read_text())["data"]
    known = {entry["group"] for entry in entries}
    for group in options.groups:
        if group not in known:
            parser.error(f"no group {group}; the manifest has {', '.join(sorted(known))}")
    wanted = [e for e in entries if (e["group"] in options.groups if options.groups else "terms" not in e)]
    asking = [e for e in wanted if "terms" in e and not options.accept_terms and problem_with(cache / e["to"], e)]
    try:
        ensure(cache, [e for e in wanted if e not in asking])
        for entry in asking:
            show_terms(cache, entry)
        if asking:
            return 2
    except FetchError as error:
        say(f"error: {error}")
        return 1
    except OSError as error:
        hint = HINTS.get(error.errno, "")
        say(f"error: {error.filename or cache}: {error.strerror}{hint}")
        return 1
    except KeyboardInterrupt:
        say("interrupted; nothing half-fetched was kept")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
