"""`python3 dev.py test`: ruff, mypy and pytest, in lanes. Nothing but the standard library.

    python3 dev.py test            the gate: every feature once, on our own server; every merge must pass it
    python3 dev.py test --fast     unit, tidy, codec, the contract on the embedded server: for use while working
    python3 dev.py test --all      also Apache Fluss, clusters, Connect, the oldest Spark, many rounds of kills
    python3 dev.py test --times    in any lane: where the time went
    python3 dev.py test PATH ...   arguments of pytest: these tests, in one process, whatever their lane

ruff and mypy run beside pytest, whose closing line is the last line unless they fail; `--all` runs pytest in several
environments, and repeats the closing lines of all of them at the end. After a green gate on a clean tree the commit is
written to `.git/last-green`.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tools.environment import BIN, PYTHON, ROOT, run

CHECKED_FOLDERS = ["src", "tests", "tools", "bench", "examples", "typings", "dev.py"]
LANES = {"--fast": "fast", "--all": "all"}
MARKS = {"fast": "fast", "gate": "fast or gate", "all": "fast or gate or all"}
# Importing the tests of other folders, in five processes, takes as long as many tests; tests/tidy checks the list.
FAST_FOLDERS = ["tests/unit", "tests/tidy", "tests/contract"]
# Four on two cores: many tests wait for processes. tests/support/runner/lanes.py distributes the tests.
IN_PROCESSES = ["-n", "4", "--dist", "loadfile", "--no-loadscope-reorder"]
SEED_VARIABLE = "FLUSS_TEST_SEED"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "flusspy-tests"


class StaticChecks:
    """Runs ruff and mypy in a separate thread, and prints their findings at once."""

    def __init__(self) -> None:
        self.failed: list[str] = []
        self._thread = threading.Thread(target=self._run, name="static-checks")
        self._thread.start()

    def _run(self) -> None:
        folders = [folder for folder in CHECKED_FOLDERS if (ROOT / folder).exists()]
        # The cache of mypy is shared by all clones: entries for the same files are valid in each of them.
        cache = CACHE / f"mypy-{sys.version_info.major}.{sys.version_info.minor}"
        checks: dict[str, list[str | Path]] = {
            "ruff check": [BIN / "ruff", "check", "--quiet", *folders],
            "ruff format": [BIN / "ruff", "format", "--quiet", "--check", *folders],
            "mypy": [BIN / "mypy", "--no-error-summary", "--cache-dir", cache],
        }
        start = time.monotonic()
        for name, command in checks.items():
            with tempfile.TemporaryFile("w+") as output, alone_with(cache):
                words = [str(part) for part in command]
                code = subprocess.run(words, cwd=ROOT, stdout=output, stderr=output).returncode
                output.seek(0)
                said = output.read().strip()
            if code != 0:
                self.failed.append(name)
                print(f"\ndev.py: {name}\n{said}", flush=True)
        outcome = f"FAILED: {', '.join(self.failed)}" if self.failed else "passed"
        print(f"\ndev.py: ruff and mypy after {time.monotonic() - start:.0f} s: {outcome}", flush=True)

    def end(self) -> list[str]:
        """Wait for the checks; return the names of those that failed."""
        self._thread.join()
        return self.failed


@contextlib.contextmanager
def alone_with(cache: Path) -> Iterator[None]:
    """Lock mypy's cache, because mypy fails if another run has its database open."""
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def main(arguments: list[str], more: Callable[[], int]) -> int:
    """Run a lane, or the given tests. `more` runs what only `--all` has, in other environments."""
    chosen = [lane for option, lane in LANES.items() if option in arguments]
    if len(chosen) > 1:
        raise SystemExit("dev.py: --fast and --all cannot be used together: give one of them, or none for the gate")
    lane = chosen[0] if chosen else "gate"
    given = [argument for argument in arguments if argument not in LANES]
    only_some = any(argument != "--times" for argument in given)
    commit = clean_commit()
    os.environ.setdefault(SEED_VARIABLE, str(random.randrange(2**32)))
    if not only_some:
        print(f"dev.py: {since_last_green()}\ndev.py: {SEED_VARIABLE}={os.environ[SEED_VARIABLE]}", flush=True)
    checks = StaticChecks()
    command: list[str | Path] = [PYTHON, "-m", "pytest", *given]
    if not only_some or chosen:
        command += ["-m", MARKS[lane], *IN_PROCESSES]
    if lane == "fast" and not only_some:
        command += FAST_FOLDERS
    os.environ["FLUSS_TEST_LANE"] = lane
    closing_lines = Path(tempfile.mkstemp(prefix="fluss-closing-lines-")[1])
    os.environ["FLUSS_TEST_CLOSING_LINES"] = str(closing_lines)  # see tests/support/runner/closing_lines.py
    try:
        classes = None if only_some or lane == "fast" else start_archive()
        code = run(*command)
        if classes is not None:
            classes.terminate()
            classes.wait()
        if lane == "all" and not only_some:
            code = more() or code
        failed = checks.end()
        if lane == "all" and not only_some:
            for line in closing_lines.read_text(encoding="utf-8").splitlines():
                print(f"dev.py: {line}")
    finally:
        closing_lines.unlink()
    if failed:
        print(f"dev.py: FAILED: {', '.join(failed)}, see above")
    code = code or (1 if failed else 0)
    if code == 0 and lane != "fast" and not only_some and commit == clean_commit():
        note_green(commit)
    return code


def start_archive() -> subprocess.Popen[bytes]:
    """Create the archive of Spark's classes, for faster starts of Java, if this machine has none yet."""
    command = [str(PYTHON), "-m", "tools.peers.spark_classes"]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


# ---- the last green commit ----


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else ""


def _note() -> Path | None:
    place = _git("rev-parse", "--git-path", "last-green")
    return ROOT / place if place else None


def since_last_green() -> str:
    """Describe how many commits ago the gate was last green here."""
    note = _note()
    if note is None:
        return "not a git checkout: the last green gate is unknown"
    if not note.exists():
        return "the gate was never green in this checkout"
    commit = note.read_text().strip()
    count = _git("rev-list", "--count", f"{commit}..HEAD")
    if not count:
        return f"the gate was last green at {commit[:12]}, which is not in this history"
    return f"the gate was last green at {commit[:12]}, {count} commits ago" + (
        ", and there are changes that are not committed" if _git("status", "--porcelain") else ""
    )


def clean_commit() -> str:
    """The commit of HEAD, or an empty string if the tree has changes."""
    return "" if _git("status", "--porcelain") else _git("rev-parse", "HEAD")


def note_green(commit: str) -> None:
    """Write the tested commit to `.git/last-green`; do nothing for a tree with changes."""
    note = _note()
    if note is not None and commit:
        note.write_text(commit + "\n")
