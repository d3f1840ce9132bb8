"""Uploads that die at any point leave no gap, and no object that a later round does not find."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fluss.model.paths import TableBucket, TablePath
from fluss.server.catalog.drop_records import Dropped
from fluss.server.storage.directory.table_directories import list_directories, mark_dropped
from fluss.server.storage.files import FileSystem
from fluss.server.storage.log.index import OFFSET_ENTRY, TIME_ENTRY
from fluss.server.storage.log.segment import SegmentInfo
from fluss.server.storage.remote_store import RemoteStore
from fluss.server.tablet.buckets.dropped_files import dropped_directories, remove_directory
from fluss.server.tablet.remote.manifest import manifest_from_json, segment_object
from fluss.server.tablet.remote.remote_log import RemoteLog
from fluss.server.tablet.remote.segment_selection import segments_from

PATH = TablePath("db", "t")
BUCKET = TableBucket(7, None, 3)

NOW_MS = 10**15


class CrashError(Exception):
    """The process died here."""


class Fuse:
    """Dies before the n-th operation that it guards."""

    def __init__(self, operations: int) -> None:
        self.left = operations

    def burn(self) -> None:
        if self.left == 0:
            raise CrashError
        self.left -= 1


class FusedStore(RemoteStore):
    """A store whose process may die before any operation."""

    def __init__(self, root: str, fuse: Fuse) -> None:
        super().__init__(root)
        self._fuse = fuse

    def upload(self, source: Path, name: str, expected_bytes: int) -> None:
        self._fuse.burn()
        super().upload(source, name, expected_bytes)

    def write(self, name: str, content: bytes) -> None:
        self._fuse.burn()
        super().write(name, content)

    def delete(self, name: str) -> None:
        self._fuse.burn()
        super().delete(name)

    def delete_directory(self, name: str) -> None:
        self._fuse.burn()
        super().delete_directory(name)


class FusedFiles(FileSystem):
    """Local files whose process may die before a rename."""

    def __init__(self, fuse: Fuse) -> None:
        self._fuse = fuse

    def replace(self, source: str, target: str) -> None:
        self._fuse.burn()
        super().replace(source, target)


def segment(directory: Path, base: int, end: int, timestamp: int = 0) -> SegmentInfo:
    """A local segment with one index entry in the middle."""
    stem = directory / f"{base:020d}"
    stem.with_suffix(".log").write_bytes(bytes([base % 256]) * 100)
    stem.with_suffix(".index").write_bytes(OFFSET_ENTRY.pack((end - base) // 2, 60))
    stem.with_suffix(".timeindex").write_bytes(TIME_ENTRY.pack(timestamp, 0))
    paths = [str(stem.with_suffix(suffix)) for suffix in (".log", ".index", ".timeindex")]
    return SegmentInfo(paths[0], paths[1], paths[2], base, end, 100, timestamp)


def open_log(tmp_path: Path, fuse: Fuse | None = None) -> RemoteLog:
    fuse = fuse or Fuse(10**6)
    bucket_directory = tmp_path / "data" / "db" / "t-7" / "log-3"
    bucket_directory.mkdir(parents=True, exist_ok=True)
    store = FusedStore(str(tmp_path / "remote"), fuse)
    return RemoteLog.open(bucket_directory, store, PATH, BUCKET, None, FusedFiles(fuse))


def remote_files(tmp_path: Path) -> set[str]:
    root = tmp_path / "remote"
    return {str(path) for path in root.rglob("*") if path.is_file()}


def expected_files(log: RemoteLog) -> set[str]:
    directory = log.record.tablet_directory
    names = set()
    for item in log.manifest.segments:
        stem = segment_object(directory, item).removesuffix(".log")
        names |= {stem + ".log", stem + ".index", stem + ".timeindex"}
    if log.record.manifest_id is not None:
        names.add(f"{directory}/metadata/{log.record.manifest_id}.manifest")
    return names


def round_of(log: RemoteLog, segments: list[SegmentInfo]) -> None:
    """Do the background work for a bucket."""
    log.collect_garbage()
    log.upload([item for item in segments if item.base_offset >= max(0, log.manifest.end_offset)], NOW_MS)


def test_layout_and_manifest_are_as_clients_expect(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    assert log.upload([segment(tmp_path, 0, 10, 100), segment(tmp_path, 10, 20, 200)], NOW_MS) == 2
    directory = tmp_path / "remote" / "log" / "db" / "t-7" / "3"
    assert log.record.tablet_directory == str(directory)
    assert remote_files(tmp_path) == expected_files(log)
    stored = (directory / "metadata" / f"{log.record.manifest_id}.manifest").read_bytes()
    assert manifest_from_json(stored) == log.manifest
    assert json.loads(stored)["remote_log_segments"][1]["start_offset"] == 10
    data = Path(segment_object(str(directory), log.manifest.segments[1]))
    assert data.name == "00000000000000000010.log"
    assert data.read_bytes() == bytes([10]) * 100


def test_index_copies_are_searched_without_the_local_segment(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.upload([segment(tmp_path, 0, 10, 100), segment(tmp_path, 10, 20, 200)], NOW_MS)
    for path in tmp_path.glob("0*"):
        path.unlink()
    log = open_log(tmp_path)
    second = log.manifest.segments[1]
    assert log.start_position(second, 14) == 0
    assert log.start_position(second, 15) == 60
    assert log.offset_for_timestamp(150, below=20) == 10
    assert log.offset_for_timestamp(150, below=10) is None
    assert log.offset_for_timestamp(201, below=20) is None
    for path in (tmp_path / "data").rglob("*.index"):
        path.write_bytes(path.read_bytes() + b"garbage!")
    assert log.start_position(second, 15) == 0, "what is not an index is not believed"
    for path in (tmp_path / "data").rglob("*.index"):
        path.unlink()
    assert log.start_position(second, 15) == 0


def test_expired_segments_leave_the_manifest_first_and_the_store_one_round_later(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.upload([segment(tmp_path, 0, 10), segment(tmp_path, 10, 20)], NOW_MS)
    before = remote_files(tmp_path)
    log.expire(1)
    assert segments_from(log.manifest, 5) == ()
    assert log.manifest.end_offset == 20
    assert before <= remote_files(tmp_path)
    log.collect_garbage()
    assert remote_files(tmp_path) == expected_files(log)
    log.expire(1)
    log.collect_garbage()
    assert log.manifest.end_offset == 20
    assert open_log(tmp_path).manifest.end_offset == 20


@pytest.mark.parametrize("operations", range(29))
def test_a_crash_at_any_point_of_an_upload(tmp_path: Path, operations: int) -> None:
    segments = [segment(tmp_path, start, start + 10, start) for start in (0, 10, 20)]
    log = open_log(tmp_path, Fuse(operations))
    died = True
    try:
        round_of(log, segments[:1])
        round_of(log, segments)
        log.expire(1)
        log.collect_garbage()
        died = False
    except CrashError:
        pass
    after = open_log(tmp_path)
    # Whatever the record says is there, whole, and without a hole.
    assert expected_files(after) <= remote_files(tmp_path)
    assert after.manifest == log.manifest
    round_of(after, segments)
    after.collect_garbage()
    assert after.manifest.end_offset == 30
    assert after.manifest.segments[-1].end_offset == 30
    assert remote_files(tmp_path) == expected_files(after)
    assert died == (operations < 28), "the number of crash points has changed"


def test_a_closed_log_uploads_nothing_more(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.close()
    assert log.upload([segment(tmp_path, 0, 10)], NOW_MS) == 0
    assert remote_files(tmp_path) == set()


def test_destroy_removes_everything_remote(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.upload([segment(tmp_path, 0, 10)], NOW_MS)
    log.destroy()
    assert remote_files(tmp_path) == set()
    assert not (tmp_path / "remote" / "log").exists()


def test_directories_of_dropped_tables_are_removed_with_their_remote_objects(tmp_path: Path) -> None:
    """Only those: a directory that is not known to be dropped stays, whether the catalog has it or not."""
    log = open_log(tmp_path)
    log.upload([segment(tmp_path, 0, 10)], NOW_MS)
    data = tmp_path / "data"
    for name in ("kept-8/p1-p5", "kept-8/p2-p6", "kept-8/p3-p7", "unknown-9/p4-p8", "marked-10", "there-11"):
        (data / "db" / name / "log-0").mkdir(parents=True)
    (data / "db" / "something else").mkdir()
    mark_dropped(data / "db" / "marked-10", FileSystem())
    mark_dropped(data / "db" / "there-11", FileSystem())
    dropped = Dropped(frozenset({7, 8}), frozenset({5, 6, 8}))
    known = dropped_directories(
        list_directories(data), dropped, lambda table: table in (8, 11), lambda _, partition: partition == 5
    )
    assert known == [data / "db" / "kept-8" / "p2-p6", data / "db" / "marked-10", data / "db" / "t-7"]
    for directory in known:
        assert remove_directory(directory, RemoteStore(str(tmp_path / "remote")), FileSystem())
    assert remote_files(tmp_path) == set()
    assert sorted(path.name for path in (data / "db").iterdir()) == [
        "kept-8",
        "something else",
        "there-11",
        "unknown-9",
    ]
    assert sorted(path.name for path in (data / "db" / "kept-8").iterdir()) == ["p1-p5", "p3-p7"]
    assert list_directories(tmp_path / "missing") == []


def test_stores_by_address(tmp_path: Path) -> None:
    bucket = TableBucket(1, 2, 0)
    assert RemoteStore(f"file://{tmp_path}").root == str(tmp_path)
    local = RemoteStore(str(tmp_path)).tablet_directory(PATH, bucket, "x$y")
    assert local == f"{tmp_path}/log/db/t-1/x$y-p2/0"
    s3 = RemoteStore("s3://bucket/prefix/?region=eu-west-1")
    assert s3.tablet_directory(PATH, BUCKET, None) == "s3://bucket/prefix/log/db/t-7/3"


def test_an_object_store_through_pyarrow(tmp_path: Path) -> None:
    # pyarrow's in-memory file system stands for any store that is not a local directory.
    store = RemoteStore("mock:///bucket")
    source = tmp_path / "source"
    source.write_bytes(b"x" * 1000)
    name = "mock:///bucket/a/b.log"
    store.upload(source, name, 1000)
    store.write("mock:///bucket/a/m", b"{}")
    assert store.read(name) == b"x" * 1000
    store.delete("mock:///bucket/a/m")
    store.delete("mock:///bucket/a/m")
    with pytest.raises(OSError, match="1000 bytes, expected 999"):
        store.upload(source, name, 999)
    store.delete_directory("mock:///bucket/a")
    store.delete_directory("mock:///bucket/a")
    with pytest.raises(FileNotFoundError):
        store.read(name)
