"""The virtual environments of the project, created from the lock file with nothing but the standard library.

An environment is created once, and again when the lock file, the project file, the interpreter or the path of the
checkout changes.
"""

from __future__ import annotations

import ast
import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import venv
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parents[1]
ENVIRONMENT = ROOT / ".venv"
SPARK42_ENVIRONMENT = ROOT / ".venv-spark42"
LOCK = ROOT / "requirements.lock"
SPARK42_LOCK = ROOT / "requirements-spark42.lock"
PROGRAMS = "Scripts" if os.name == "nt" else "bin"
BIN = ENVIRONMENT / PROGRAMS
PYTHON = BIN / "python"

# Measured sizes. Packages are hard links into uv's cache if it is on the same disk; the cache also has Spark's sources.
FETCHED_GB, ROOM_GB, CACHE_GB = 0.8, 1.5, 1.4

# Most modules of the packages are never imported; Python compiles those that are imported.
PIP = ["-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-compile"]
# Spark is published as sources that must be packed, which is done with the setuptools of the lock file.
BUILDS = ["--no-deps", "--no-build-isolation"]
# uv does not read pip's settings, which machines behind a mirror need.
UV_SETTINGS = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "no-index": "UV_NO_INDEX",
    "trusted-host": "UV_INSECURE_HOST",
    "default-timeout": "UV_HTTP_TIMEOUT",
    "timeout": "UV_HTTP_TIMEOUT",
    "cert": "SSL_CERT_FILE",
    "proxy": "ALL_PROXY",
}


def run(*command: str | Path, environment: dict[str, str] | None = None) -> int:
    """Run a program in the checkout; its output is not redirected."""
    sys.stdout.flush()
    variables = dict(os.environ if environment is None else environment)
    # With this variable, each Python that Spark and the tests start would compile all modules again, for seconds.
    variables.pop("PYTHONDONTWRITEBYTECODE", None)
    return subprocess.run([str(part) for part in command], cwd=ROOT, env=variables).returncode


def become(*command: str | Path) -> NoReturn:
    """Replace this process by a program, if the system supports it: one that kills itself needs no parent.

    Signals that end programs stay pending until the new program checks for them.
    """
    if os.name == "nt":
        sys.exit(run(*command))
    sys.stdout.flush()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # see `run`
    os.chdir(ROOT)
    os.execv(command[0], [str(part) for part in command])


def set_up(environment: Path, requirements: str) -> None:
    """Create an environment unless it is up to date. An incomplete environment has no stamp and is created again."""
    stamp = environment / "made-from.txt"
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    wanted = hashlib.sha256(f"{sys.version} {ROOT}{requirements}{project}".encode()).hexdigest()
    if stamp.exists() and stamp.read_text() == wanted:
        return
    start = time.monotonic()

    def tell(what: str, end: str = "\n") -> None:
        print(f"dev.py: {time.monotonic() - start:3.0f} s  {what}", end=end, flush=True)

    def install(what: str, *arguments: str) -> None:
        with _ticking(lambda end: tell(what, end)):
            _install(python, *arguments)

    room = f"{ROOM_GB} GB of room here ({shutil.disk_usage(ROOT).free / 1e9:.0f} GB are free)"
    tell(f"creating {environment.name}: {room}; the first time {FETCHED_GB} GB to fetch, {CACHE_GB} GB in uv's cache")
    if environment.exists():
        tell("removing the old environment")
        shutil.rmtree(environment)
    tell(f"an empty environment of Python {sys.version.split()[0]}")
    venv.create(environment, with_pip=True)
    python = environment / PROGRAMS / "python"
    listed, first = environment / "requirements.txt", environment / "requirements-first.txt"
    listed.write_text(requirements, encoding="utf-8")
    first.write_text(_entries(requirements, "uv", "setuptools"), encoding="utf-8")
    tell("uv and setuptools, which install the others")
    _pip(python, "--require-hashes", "--no-deps", "-r", str(first))
    install("the packages of requirements.lock (Spark is the largest)", "--require-hashes", "-r", str(listed))
    install("this project, for editing", "-e", ".")
    stamp.write_text(wanted)
    tell(f"{environment.name} is ready")


@contextmanager
def _ticking(tell: Callable[[str], None]) -> Iterator[None]:
    """Show the elapsed time, every second on a terminal; `tell` prints it with the given end of the line."""
    if not sys.stdout.isatty():
        tell("\n")
        yield
        return
    is_over = threading.Event()

    def tick() -> None:
        tell("")
        while not is_over.wait(1):
            print("\r\x1b[K", end="")
            tell("")

    ticker = threading.Thread(target=tick, daemon=True)
    ticker.start()
    try:
        yield
    finally:
        is_over.set()
        ticker.join()
        print(flush=True)


def _install(python: Path, *what: str) -> None:
    """Install with uv, which is several times faster, or with pip if uv does not work."""
    uv: list[str | Path] = [python.with_name("uv"), "pip", "install", "--quiet", "--python", python]
    if run(*uv, *BUILDS, *what, environment=_uv_settings(python)) != 0:
        print("dev.py: uv failed, trying pip", flush=True)
        _pip(python, "--use-pep517", *BUILDS, *what)


def _pip(python: Path, *what: str) -> None:
    if run(python, *PIP, *what) != 0:
        raise SystemExit(f"dev.py: pip could not install {' '.join(what)}; its output above has the reason")


def _uv_settings(python: Path) -> dict[str, str]:
    """The environment variables for uv: those of the user, and the settings of pip in the form of uv."""
    command = [str(python), "-m", "pip", "--disable-pip-version-check", "config", "list"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout
    found: dict[str, str] = {}
    for place in ("global", "install", ":env:"):  # later sections win
        for name, value in re.findall(rf"^{place}\.([\w-]+)=('.*'|\".*\")$", listed, re.MULTILINE):
            if name in UV_SETTINGS:
                words = str(ast.literal_eval(value)).split()
                found[UV_SETTINGS[name]] = ("," if name == "find-links" else " ").join(words)
    # Hashes identify the files, so it does not matter which index they come from.
    # uv leaves locks among temporary files.
    return {"UV_INDEX_STRATEGY": "unsafe-best-match", **found, **os.environ, "TMPDIR": str(python.parents[1])}


def _entries(requirements: str, *names: str) -> str:
    """The entries of these packages in a lock file, with their hashes."""
    return "".join(re.findall(rf"^(?:{'|'.join(names)})==.*\n(?: .*\n)+", requirements, re.MULTILINE))


def with_spark42(requirements: str) -> str:
    """Return the lock file with the newest Spark replaced by the oldest one that we support."""
    return requirements.replace(_entries(requirements, "pyspark"), SPARK42_LOCK.read_text(encoding="utf-8"))
