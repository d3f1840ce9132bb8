"""The virtual environments of the project, made from the lock file; with nothing but the standard library.

An environment is made once, and again when the lock file, the project file, the interpreter or its place changes.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ENVIRONMENT = ROOT / ".venv"
SPARK42_ENVIRONMENT = ROOT / ".venv-spark42"
LOCK = ROOT / "requirements.lock"
PROGRAMS = "Scripts" if os.name == "nt" else "bin"
BIN = ENVIRONMENT / PROGRAMS
PYTHON = BIN / "python"

# Most modules of the packages are never imported: Python compiles those that are.
PIP = ["-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-compile"]


def run(*command: str | Path) -> int:
    """Run a program in the checkout; its output is the user's output."""
    sys.stdout.flush()
    return subprocess.run([str(part) for part in command], cwd=ROOT).returncode


def set_up(environment: Path, requirements: str) -> None:
    """Make an environment unless it fits already. A half-made one has no stamp and is made again."""
    stamp = environment / "made-from.txt"
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    wanted = hashlib.sha256(f"{sys.version} {ROOT}{requirements}{project}".encode()).hexdigest()
    if stamp.exists() and stamp.read_text() == wanted:
        return
    print(f"dev.py: making {environment.name}", flush=True)
    if environment.exists():
        shutil.rmtree(environment)
    venv.create(environment, with_pip=True)
    listed = environment / "requirements.txt"
    listed.write_text(requirements, encoding="utf-8")
    for what in (["--require-hashes", "-r", str(listed)], ["--no-deps", "--no-build-isolation", "-e", "."]):
        if run(environment / PROGRAMS / "python", *PIP, *what) != 0:
            raise SystemExit("dev.py: pip could not install " + " ".join(what))
    stamp.write_text(wanted)


def with_spark42(requirements: str) -> str:
    """The lock file with the Spark that it has for Python 3.10, on every Python."""
    entries = re.findall(r"^pyspark==.*\n(?: .*\n)+", requirements, re.MULTILINE)
    (kept,) = [entry for entry in entries if entry.startswith("pyspark==4.2.")]
    for entry in entries:
        plain = re.sub(r" ; .* \\\n", r" \\\n", entry, count=1)
        requirements = requirements.replace(entry, plain if entry == kept else "")
    return requirements
