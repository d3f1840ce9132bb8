"""Segments in remote storage are read as if they were local, projected and filtered too."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs

import fluss
from fluss import FlussError, col
from fluss.client.decode.scan_plan import ScanPlan
from fluss.client.net import remote_files
from fluss.client.scan import ready_queue, remote_reader
from fluss.client.scan.log_range import LogRange
from fluss.codec.batches.log_batch import iter_batches
from tests.support.servers.restartable import KINDS, RestartableServer, restartable_server
from tests.support.tables.scan_tables import WAIT_MS, ScanTable, rows_of
from tools.waiting import wait_until

ROWS_PER_WRITE = 200
WRITES = 30
TOTAL = ROWS_PER_WRITE * WRITES


class RemoteTable:
    """A table most of whose rows have left the server's own disk. The tests of a server share it."""

    def __init__(self, server: RestartableServer, connection: fluss.FlussConnection) -> None:
        self.server = server
        self.row_count = TOTAL
        self.name = f"tiered_{uuid.uuid4().hex[:8]}"
        self.table = ScanTable(
            connection,
            self.name,
            bucket_count=1,
            properties={"table.log.tiered.local-segments": "1", "table.log.arrow.compression.type": "NONE"},
        )
        for start in range(0, TOTAL, ROWS_PER_WRITE):
            self.table.write(rows_of(range(start, start + ROWS_PER_WRITE)))
        wait_until(lambda: len(self.local_segments()) <= 2, "old segments are in remote storage only")
        wait_until(lambda: len(self.remote_segments()) > 3, "there are remote segments")

    def local_segments(self) -> list[Path]:
        return self._segments(self.server.data_directory, "log-0")

    def remote_segments(self) -> list[Path]:
        return self._segments(self.server.remote_directory / "log", "0")

    def _segments(self, directory: Path, bucket: str) -> list[Path]:
        """The segments of the bucket; folders may vanish meanwhile."""
        inside = str(Path("fluss", f"{self.name}-{self.table.table_id}", bucket))
        found = [Path(folder, name) for folder, _, names in os.walk(directory) if inside in folder for name in names]
        return sorted(path for path in found if path.suffix == ".log")


@pytest.fixture(scope="module", params=KINDS)
def remote(request: pytest.FixtureRequest) -> Iterator[RemoteTable]:
    server = restartable_server(request.param)
    with fluss.FlussConnection.open(server.config()) as connection:
        yield RemoteTable(server, connection)


def test_everything_is_read_from_the_start(remote: RemoteTable) -> None:
    assert remote.table.read() == rows_of(range(remote.row_count))


def test_from_the_middle_of_a_remote_segment(remote: RemoteTable) -> None:
    with remote.table.records() as scanner:
        for start in (1, 777, 2000):
            scanner.subscribe(0, start)
            seen: list[int] = []
            while len(seen) < 2500:
                records = scanner.poll(WAIT_MS)
                assert [record.offset for record in records] == [record.row["id"] for record in records]
                seen += [record.offset for record in records]
            assert seen == list(range(start, start + len(seen)))


def test_projection_and_filter_on_remote_rows(remote: RemoteTable) -> None:
    scan = remote.table.table.new_scan()
    found = remote.table.read(scan.project_by_name(["score", "id"]))
    assert found == rows_of(range(remote.row_count)).select(["score", "id"])
    wanted = (col("id") >= 100) & (col("id") < 110)
    assert remote.table.read(scan.project([1]).filter(wanted)).num_rows == 10


def test_new_rows_follow_the_remote_ones(remote: RemoteTable) -> None:
    with remote.table.batches() as scanner:
        scanner.subscribe_all()
        assert scanner.to_arrow().num_rows == remote.row_count
        new = range(remote.row_count, remote.row_count + 10)
        remote.table.write(rows_of(new))
        remote.row_count += 10
        assert scanner.poll_arrow(WAIT_MS).column("id").to_pylist() == list(new)


def test_other_file_systems_are_read_in_ranges(remote: RemoteTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """The path is made to look foreign; batches lie over the borders of small ranges."""
    opened: list[str] = []

    def foreign(path: str, token: Any) -> tuple[Any, str]:
        opened.append(path)
        return fs.LocalFileSystem(), path

    monkeypatch.setattr(remote_files, "object_store", foreign)
    monkeypatch.setattr(remote_reader, "local_path", lambda path: None)
    monkeypatch.setattr(remote_reader, "RANGE_BYTES", 3000)
    assert remote.table.read().column("id").to_pylist() == list(range(remote.row_count))
    assert len(opened) > 3


def test_a_restart_while_remote_segments_are_read(remote: RemoteTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server is away when the first answer's segments are read; where it goes on is asked of the new one."""
    monkeypatch.setattr(ready_queue, "MAX_READY_BYTES", 1)
    with remote.table.batches() as scanner:
        scanner.subscribe_all()
        found = scanner.poll_arrow(WAIT_MS).column("id").to_pylist()
        assert 0 < len(found) < remote.row_count
        remote.server.goes_away()
        try:
            found += scanner.poll_arrow(WAIT_MS).column("id").to_pylist()
        finally:
            remote.server.comes_back()
        while len(found) < remote.row_count:
            more = scanner.poll_arrow(5 * WAIT_MS).column("id").to_pylist()
            assert more
            found += more
        assert found == list(range(remote.row_count))


class CountedFiles:
    """The local file system, with a count of its open files."""

    def __init__(self) -> None:
        self.open_now = self.most_open = 0
        self._lock = threading.Lock()

    def open_input_file(self, path: str) -> Any:
        with self._lock:
            self.open_now += 1
            self.most_open = max(self.most_open, self.open_now)
        return CountedFile(self, fs.LocalFileSystem().open_input_file(path))

    def closed(self) -> None:
        with self._lock:
            self.open_now -= 1

    def are_closed(self) -> bool:
        return self.open_now == 0


class CountedFile:
    def __init__(self, files: CountedFiles, file: Any) -> None:
        self._files = files
        self._file = file
        self.size = file.size
        self.read_at = file.read_at

    def close(self) -> None:
        self._file.close()
        self._files.closed()


def test_segments_are_read_ahead_up_to_the_limit(remote: RemoteTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_reader, "local_path", lambda path: None)
    wanted = len(remote.remote_segments())
    for limit in (1, 3):
        files = CountedFiles()
        monkeypatch.setattr(remote_files, "object_store", lambda path, token, files=files: (files, path))
        config = remote.server.config(**{"scanner.remote-log.prefetch-num": str(limit)})
        with fluss.FlussConnection.open(config) as connection:
            table = asyncio.run(_opened(connection, remote.table.path))
            assert remote.table.read(table.new_scan()).column("id").to_pylist() == list(range(remote.row_count))
        assert files.most_open == min(limit, wanted)
        wait_until(files.are_closed, "all files are closed")


async def _opened(connection: fluss.FlussConnection, path: fluss.TablePath) -> fluss.FlussTable:
    return await connection.get_table(path)


def test_storage_that_nobody_can_read_is_told(remote: RemoteTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """Huawei's object store, which pyarrow does not know; and whatever else a file system may raise."""
    object_store = remote_files.object_store
    monkeypatch.setattr(remote_reader, "local_path", lambda path: None)

    def odd(path: str, token: Any) -> Any:
        raise KeyError("odd")

    for store, words in (
        (lambda path, token: object_store(f"obs://bucket{path}", token), "cannot read remote log segments of obs://"),
        (odd, "remote log segment cannot be read: 'odd'"),
    ):
        monkeypatch.setattr(remote_files, "object_store", store)
        with remote.table.batches() as scanner:
            scanner.subscribe_all()
            for _ in range(2):
                with pytest.raises(FlussError, match=words) as caught:
                    scanner.poll_arrow(WAIT_MS)
                assert caught.value.error_code == fluss.ErrorCode.STORAGE_EXCEPTION


def test_segments_that_cannot_be_read_are_an_error(remote: RemoteTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_reader, "MAX_FAILURES_IN_A_ROW", 2)
    moved = [(path, path.with_suffix(".away")) for path in remote.remote_segments()]
    for path, away in moved:
        path.rename(away)
    with remote.table.batches() as scanner:
        scanner.subscribe_all()
        with pytest.raises(FlussError, match="remote log segment cannot be read"):
            scanner.to_arrow()
        for path, away in moved:
            away.rename(path)
        assert scanner.to_arrow().num_rows == remote.row_count


def test_damaged_segments_are_noticed(remote: RemoteTable) -> None:
    path = remote.remote_segments()[0]
    sound = path.read_bytes()
    content = bytearray(sound)
    content[200] ^= 0xFF
    path.write_bytes(content)
    try:
        with remote.table.batches() as scanner:
            scanner.subscribe(0, int(path.stem))
            with pytest.raises(FlussError, match="checksum") as caught:
                scanner.poll_arrow(WAIT_MS)
            assert caught.value.error_code == fluss.ErrorCode.CORRUPT_RECORD_EXCEPTION
    finally:
        path.write_bytes(sound)


def _without_a_batch(content: bytes) -> bytes:
    """The second batch is left out; the first one once more keeps the size."""
    (_, first), (_, second), *_ = iter_batches(content)
    return content[: first.size] + content[first.size + second.size :] + content[: second.size]


def _cut_behind_a_batch(content: bytes) -> bytes:
    *_, (position, _) = iter_batches(content)
    return content[:position]


def _moved(content: bytes) -> bytes:
    """The offset of the second batch is wrong: no checksum covers it."""
    (_, first), *_ = iter_batches(content)
    at = first.size
    return content[:at] + (int.from_bytes(content[at : at + 8], "little") + 1).to_bytes(8, "little") + content[at + 8 :]


FAULTS: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "empty": (lambda content: b"", "has 0 bytes, but the server announced"),
    "half": (lambda content: content[: len(content) // 2], "bytes, but the server announced"),
    "cut behind a batch": (_cut_behind_a_batch, "bytes, but the server announced"),
    "zeros": (lambda content: bytes(len(content)), "invalid length 0"),
    "zeros at the end": (
        lambda content: content[:-4096] + bytes(4096),
        "cannot be read|a whole batch|ends at offset",
    ),
    "a batch left out": (_without_a_batch, "has offset .*, expected "),
    "another offset": (_moved, "has offset .*, expected "),
    "a flipped bit": (lambda content: content[:200] + bytes([content[200] ^ 1]) + content[201:], "checksum"),
}


def _replace(path: Path, content: bytes) -> None:
    """In one step: a reader may have the old file mapped."""
    path.with_suffix(".new").write_bytes(content)
    path.with_suffix(".new").replace(path)


def _only_in_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_files, "object_store", lambda path, token: (fs.LocalFileSystem(), path))
    monkeypatch.setattr(remote_reader, "local_path", lambda path: None)
    monkeypatch.setattr(remote_reader, "RANGE_BYTES", 3000)


def _poll_into(seen: list[int], scanner: fluss.LogScanner, count: int) -> None:
    while len(seen) < count:
        seen += scanner.poll_arrow(WAIT_MS).column("id").to_pylist()


@pytest.mark.parametrize("way", ["mapped", "in ranges"])
@pytest.mark.parametrize("fault", FAULTS)
def test_no_row_of_a_damaged_segment_is_skipped(
    remote: RemoteTable, fault: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows before it are delivered, then there is an error that names the file, as often as one asks."""
    if way == "in ranges":
        _only_in_ranges(monkeypatch)
    damage, words = FAULTS[fault]
    path = sorted(remote.remote_segments(), key=lambda each: each.name)[2]
    sound = path.read_bytes()
    _replace(path, damage(sound))
    seen: list[int] = []
    try:
        with remote.table.batches() as scanner:
            scanner.subscribe_all()
            for _ in range(2):
                with pytest.raises(FlussError, match=words) as caught:
                    _poll_into(seen, scanner, remote.row_count)
                assert caught.value.error_code == fluss.ErrorCode.CORRUPT_RECORD_EXCEPTION
                assert str(path) in caught.value.message
            assert seen == list(range(len(seen)))
            assert int(path.stem) <= len(seen) < int(path.stem) + 2 * ROWS_PER_WRITE * 16
            _replace(path, sound)
            with contextlib.suppress(FlussError):  # it may have been read once more before
                _poll_into(seen, scanner, remote.row_count)
            _poll_into(seen, scanner, remote.row_count)
        assert seen == list(range(remote.row_count))
    finally:
        _replace(path, sound)


@pytest.mark.parametrize("way", ["mapped", "in ranges"])
@pytest.mark.parametrize("fault", [name for name in FAULTS if name not in ("empty", "half", "cut behind a batch")])
def test_damage_in_a_segment_is_skipped_and_named(
    remote: RemoteTable, fault: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every row is read or named, once. A file that is too short stays an error: it may come back."""
    if way == "in ranges":
        _only_in_ranges(monkeypatch)
    path = sorted(remote.remote_segments(), key=lambda each: each.name)[2]
    sound = path.read_bytes()
    _replace(path, FAULTS[fault][0](sound))
    skipped: list[fluss.BadBatch] = []
    scan = remote.table.table.new_scan().on_bad_batch("skip", skipped.append)
    try:
        with scan._log_scanner(records=False) as scanner:
            scanner.subscribe_all()
            seen = scanner.to_arrow().column("id").to_pylist()
    finally:
        _replace(path, sound)
    named = [offset for bad in skipped for offset in range(bad.first_offset, bad.last_offset + 1)]
    assert sorted(seen + named) == list(range(remote.row_count))
    assert named
    if fault != "zeros":
        assert len(named) <= 2 * ROWS_PER_WRITE * 16


def test_rows_before_a_damaged_segment_are_read(remote: RemoteTable) -> None:
    """A bounded read does not meet what lies behind its end."""
    path = sorted(remote.remote_segments(), key=lambda each: each.name)[2]
    sound = path.read_bytes()
    _replace(path, b"")
    stop = int(path.stem)
    table = remote.table.table
    try:
        ranges = {remote.table.bucket(0): (0, stop)}
        with LogRange(table._session, table._table, ScanPlan(), ranges) as log:
            assert [row for rows in log for row in rows.rows.column(0).to_pylist()] == list(range(stop))
    finally:
        _replace(path, sound)
