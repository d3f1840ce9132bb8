"""Damage in the middle of a write-ahead log is found wherever it is, and not confused with a torn end."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from fluss.server.catalog.wal_check import find_damage

FRAME_BYTES = 24 + 4096
COMMITS = 12
HEADER = -1


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Many commits of one and more frames, and at the end frames of an earlier generation."""
    path = tmp_path_factory.mktemp("wal") / "a.sqlite"
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, text TEXT)")
    for number in range(30):
        connection.execute("INSERT INTO t VALUES (?, ?)", (number, "x" * 1000))
    connection.execute("PRAGMA wal_checkpoint(RESTART)")
    for number in range(COMMITS):
        connection.execute("INSERT INTO t VALUES (?, ?)", (100 + number, "y" * 3000))
    content = path.with_name("a.sqlite-wal").read_bytes()
    connection.close()
    return content


def commit_frames(log: bytes) -> list[int]:
    salts = log[16:24]
    found = []
    for number, start in enumerate(range(32, len(log), FRAME_BYTES)):
        if log[start + 8 : start + 16] == salts and log[start + 4 : start + 8] != bytes(4):
            found.append(number)
    return found


def damage_of(tmp_path: Path, content: bytes) -> int | None:
    (tmp_path / "wal").write_bytes(content)
    found = find_damage(tmp_path / "wal")
    return None if found is None else HEADER if found.frame is None else found.frame


def test_an_undamaged_log(tmp_path: Path, log: bytes) -> None:
    assert len(commit_frames(log)) == COMMITS
    assert damage_of(tmp_path, log) is None
    assert find_damage(tmp_path / "missing") is None
    for size in (0, 31, 32, 5000):
        assert damage_of(tmp_path, log[:size]) is None


@pytest.mark.parametrize("place", [0, 5, 9, 13, 17, 24, 2000, 4119], ids=str)
def test_one_bit_anywhere_in_a_frame(tmp_path: Path, log: bytes, place: int) -> None:
    """In each part of a frame's header and in its page. Damage of the last commits may look like a torn end."""
    commits = commit_frames(log)
    for frame in range(commits[-3] + 1):
        content = bytearray(log)
        content[32 + frame * FRAME_BYTES + place] ^= 4
        assert damage_of(tmp_path, bytes(content)) == frame


def test_a_torn_end(tmp_path: Path, log: bytes) -> None:
    """A power loss may remove any parts of the last transaction, in any order."""
    *_, before, last = commit_frames(log)
    for frame in range(before + 1, last + 1):
        start = 32 + frame * FRAME_BYTES
        for first, end in ((start, start + FRAME_BYTES), (start + 24, start + 512), (start, start + 24)):
            content = bytearray(log)
            content[first:end] = bytes(end - first)
            assert damage_of(tmp_path, bytes(content)) is None
        assert damage_of(tmp_path, log[: start + 100]) is None


@pytest.mark.parametrize("place", range(0, 32, 3), ids=str)
def test_one_bit_anywhere_in_the_header(tmp_path: Path, log: bytes, place: int) -> None:
    """SQLite ignores and deletes a log with such a header, as if it had never been used."""
    content = bytearray(log)
    content[place] ^= 4
    assert damage_of(tmp_path, bytes(content)) == HEADER
    assert "header" in str(find_damage(tmp_path / "wal"))


def test_zeros(tmp_path: Path, log: bytes) -> None:
    """A power loss before the first header is on disk leaves zeros. Changes are only written after a header."""
    assert damage_of(tmp_path, bytes(32)) is None
    assert damage_of(tmp_path, bytes(len(log))) is None
    assert damage_of(tmp_path, bytes(4096) + log[4096:]) == HEADER


def test_leftovers_of_two_torn_transactions(tmp_path: Path) -> None:
    """Both were begun at the same frame with the same salts, and the first frame of neither arrived."""
    with opened(tmp_path / "first", b"", b"") as (connection, files):
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, text TEXT)")
        main, sound = files()
    content = sound
    for rows in (12, 6):  # the shorter one overwrites the beginning of the longer one
        with opened(tmp_path / str(rows), main, content) as (connection, files):
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany("INSERT INTO t (text) VALUES (?)", [(f"{rows}" * 1500,)] * rows)
            connection.execute("COMMIT")
            _, written = files()
        content = written[: len(sound)] + bytes(FRAME_BYTES) + written[len(sound) + FRAME_BYTES :]
        assert damage_of(tmp_path, content) is None
    commits = [frame for frame in commit_frames(content) if 32 + frame * FRAME_BYTES > len(sound)]
    assert len(commits) == 2  # of which neither was acknowledged


@contextmanager
def opened(folder: Path, main: bytes, log: bytes) -> Iterator[tuple[sqlite3.Connection, Callable[[], list[bytes]]]]:
    """Open a database with these two files; return it and the current files."""
    folder.mkdir()
    path = folder / "a.sqlite"
    paths = (path, path.with_name("a.sqlite-wal"))
    for each, content in zip(paths, (main, log), strict=True):
        if content:
            each.write_bytes(content)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        yield connection, lambda: [each.read_bytes() for each in paths]
