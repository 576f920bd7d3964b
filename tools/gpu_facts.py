"""What a record of a run on a GPU says of the machine, the date and the sources."""

import datetime
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent


def gpu_facts():
    """Name and driver version of the first GPU, or nothing."""
    try:
        text = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], check=True,
                              text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
    name, driver = (part.strip() for part in text.splitlines()[0].rsplit(",", 1))
    return name, driver


def commit_name():
    def git(*arguments):
        return subprocess.run(["git", "-C", ROOT, *arguments], check=True, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL).stdout.strip()
    try:
        dirty = git("status", "--porcelain", "--untracked-files=no")
        return git("rev-parse", "--short=12", "HEAD") + ("-dirty" if dirty else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def today():
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d")
