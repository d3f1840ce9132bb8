"""Golden archives: data that earlier versions wrote, where they are, and how they are put back.

An archive is `NAME.tar.xz` beside this file, with what it holds in `NAME.json`. Its data must lie where it was written:
an Iceberg lake names its files by absolute paths, in its metadata and inside of compressed and binary files, and so do
registered snapshots of primary-key tables. That place is `/tmp/fluss-golden/NAME`. There is one of it on the machine,
so a process that restores an archive holds a lock until it is done with it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

HERE = Path(__file__).parent
PLACE = Path("/tmp/fluss-golden")

ARCHIVES = ("967b2f9", "7e66458")
"""Commits whose data every later version must open. A change of any format adds one, and none is ever removed."""

GAPS = ("78b1e0a-gaps",)
"""Small ones, with logs that have left-out offsets: what version 2 of the data directory is for."""


@dataclass(frozen=True)
class Archive:
    """Golden data that was put back."""

    root: Path
    expected: dict[str, Any]

    @property
    def data(self) -> Path:
        """The server's data directory."""
        return self.root / "data"

    @property
    def tables(self) -> dict[str, dict[str, Any]]:
        """What each table has."""
        tables: dict[str, dict[str, Any]] = self.expected["tables"]
        return tables


def archive_path(name: str) -> Path:
    return HERE / f"{name}.tar.xz"


def expected_path(name: str) -> Path:
    return HERE / f"{name}.json"


@contextmanager
def place_of(name: str) -> Iterator[Path]:
    """The place of an archive for its one user at a time, on the whole machine; nothing is there before and after."""
    root = PLACE / name
    with _locked(PLACE / f"{name}.lock"):
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir()
        try:
            yield root
        finally:
            shutil.rmtree(root, ignore_errors=True)
    with contextlib.suppress(OSError):  # another archive is in use
        PLACE.rmdir()


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a lock whose file goes with it."""
    while (lock := _lock(path)) is None:
        pass
    with lock:
        try:
            yield
        finally:
            path.unlink()


def _lock(path: Path) -> IO[str] | None:
    """The locked file, as soon as no other process has it; None if it went with who had it."""
    try:
        path.parent.mkdir(exist_ok=True)
        lock = path.open("a")
    except FileNotFoundError:  # the folder went too
        return None
    fcntl.flock(lock, fcntl.LOCK_EX)
    with contextlib.suppress(FileNotFoundError):
        if os.path.samestat(os.fstat(lock.fileno()), path.stat()):
            return lock
    lock.close()
    return None


@contextmanager
def restored(name: str) -> Iterator[Archive]:
    """The archive as its version left it."""
    with place_of(name) as root:
        with tarfile.open(archive_path(name)) as archive:
            archive.extractall(root, filter="data")
        yield Archive(root, json.loads(expected_path(name).read_text()))


def pack(name: str, root: Path, expected: dict[str, Any]) -> None:
    """Make the archive of what is in a directory; nothing in it tells who made it."""

    def anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        return member

    with tarfile.open(archive_path(name), "w:xz", preset=9) as archive:
        for child in sorted(root.iterdir()):
            archive.add(child, child.name, filter=anonymous)
    expected_path(name).write_text(json.dumps(expected, ensure_ascii=False, separators=(",", ":")) + "\n")
