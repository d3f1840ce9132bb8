"""The folder of the peers of the tests, and a way to fetch or create each of them exactly once.

The folder is in the user's cache and not in the checkout, so that every clone finds it. It may be deleted at any time:
everything in it is fetched or created again. Names contain versions, so that old and new checkouts can share it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]

FETCH_TIMEOUT_SECONDS = 300
# A peer that is not published today may be published tomorrow.
ABSENT_SECONDS = 24 * 3600


class PeerMissingError(Exception):
    """A peer is not available on this machine. The message states what is missing and why, and is the skip reason."""


class PeerAbsentError(PeerMissingError):
    """A peer is not published for this machine, so it is not asked for again during `ABSENT_SECONDS`."""


def peers_folder() -> Path:
    """The cache folder, created if missing: `FLUSS_TEST_CACHE`, or `flusspy-tests` in the user's cache folder."""
    given = os.environ.get("FLUSS_TEST_CACHE")
    try:
        folder = Path(given).absolute() if given else _user_cache() / "flusspy-tests"
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError) as error:  # RuntimeError: a user without a home
        raise PeerMissingError(
            f"the folder for files that tests fetch cannot be created: {error}; set FLUSS_TEST_CACHE"
        ) from error
    return folder


def _user_cache() -> Path:
    given = os.environ.get("XDG_CACHE_HOME", "")
    return Path(given) if os.path.isabs(given) else Path.home() / ".cache"


@contextlib.contextmanager
def _exclusive(path: Path) -> Iterator[None]:
    """Lock the creation of a peer, because several test runs share the cache."""
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def make_once(name: str, make: Callable[[Path], None], proof: str = ".") -> Path:
    """The folder `name` of the cache, filled by `make` unless an earlier call succeeded and `proof` is still in it.

    A marker file is written last, so that a folder whose creation was interrupted is created again.
    """
    peers = peers_folder()
    folder = peers / name

    def is_complete() -> bool:
        return (folder / ".complete").exists() and (folder / proof).exists()

    if is_complete():
        return folder
    with _exclusive(peers / f"{name}.lock"):
        if not is_complete():
            _fail_if_absent(peers / f"{name}.absent")
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            try:
                make(folder)
            except PeerAbsentError as error:
                shutil.rmtree(folder, ignore_errors=True)
                (peers / f"{name}.absent").write_text(str(error), encoding="utf-8")
                raise
            (folder / ".complete").touch()
    return folder


def _fail_if_absent(note: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        if 0 <= time.time() - note.stat().st_mtime < ABSENT_SECONDS:
            raise PeerAbsentError(note.read_text(encoding="utf-8"))
        note.unlink()


def run_fetch(command: Sequence[str], what: str) -> None:
    """Run a command that fetches something; every failure is a `PeerMissingError` with the end of its output."""
    fail_if_not_fetched(run_quietly(command, what), what)


def fail_if_not_fetched(done: subprocess.CompletedProcess[str], what: str) -> None:
    """Raise `PeerMissingError` with the end of the output if the command failed."""
    if done.returncode != 0:
        last_lines = " | ".join(line for line in done.stdout.splitlines()[-4:] if line.strip())
        raise PeerMissingError(f"{what}: {done.args[0]} ended with code {done.returncode}: {last_lines}")


def run_quietly(command: Sequence[str], what: str) -> subprocess.CompletedProcess[str]:
    """Run a command with a time limit; the result has its output."""
    try:
        return subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=FETCH_TIMEOUT_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PeerMissingError(f"{what}: {error}") from error
