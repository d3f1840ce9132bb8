"""A nearly full disk: puts are refused before there is no room for their rows, and nothing is compacted meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest

from fluss.errors import ErrorCode, FlussError
from fluss.server.storage.files import FileSystem
from fluss.server.storage.kv import limits
from fluss.server.storage.kv.disk_room import DiskRoom
from fluss.server.storage.kv.limits import KvResources
from fluss.server.storage.kv.store import Applied, KvStore
from tools.waiting import wait_until

RESERVED = 1000
MEGABYTE = 1 << 20


class _Disk(FileSystem):
    def __init__(self) -> None:
        self.free = 0

    def free_bytes(self, path: str) -> int:
        return self.free


def _room(tmp_path: Path, reserved: int = RESERVED) -> tuple[_Disk, KvStore, KvResources, DiskRoom]:
    resources = KvResources(MEGABYTE, 64 * MEGABYTE)
    disk, store = _Disk(), KvStore.open(tmp_path / "db", resources)
    return disk, store, resources, DiskRoom(disk, str(tmp_path), reserved, store, resources)


def _files(store: KvStore) -> int:
    return store._database.property_int_value("rocksdb.num-files-at-level0") or 0


def _add_file(store: KvStore) -> None:
    number = store.applied.log_offset
    store.write({bytes((1 + number,)): b"x" * 100, b"\1": b"y"}, Applied(number + 1, number + 1, 0, 0))
    store.flush(wait=True)


def test_rows_in_memory_count_as_written(tmp_path: Path) -> None:
    disk, store, resources, room = _room(tmp_path)
    store.write({b"a": b"1" * 100_000}, Applied(1, 1, 0, 0))
    in_memory = resources.write_buffers.get_usage()
    assert in_memory >= 100_000
    disk.free = RESERVED + in_memory + 500
    room.check_put(500)
    with pytest.raises(FlussError, match="no space left") as caught:
        room.check_put(501)
    assert caught.value.error_code == ErrorCode.DISK_WRITE_LOCKED
    store.close()


def test_without_a_reserve_nothing_is_refused(tmp_path: Path) -> None:
    disk, store, _, room = _room(tmp_path, reserved=0)
    disk.free = 0
    room.check_put(MEGABYTE)
    store.close()


def test_compaction_pauses_without_room_for_a_second_copy(tmp_path: Path) -> None:
    disk, store, _, room = _room(tmp_path)
    room.steer_compaction()
    for _ in range(limits.COMPACT_FILES + 2):
        _add_file(store)
    assert _files(store) == limits.COMPACT_FILES + 2
    assert store.file_bytes > 0
    disk.free = 64 * MEGABYTE
    room.steer_compaction()
    wait_until(lambda: _files(store) < limits.COMPACT_FILES, "the files to be compacted")
    store.close()


def test_paused_stores_are_one_event(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    _, store, _, room = _room(tmp_path)
    room.steer_compaction()
    store.close()
    said = [record for record in caplog.records if "compaction of the store" in record.getMessage()]
    assert [getattr(record, "is_counted", False) for record in said] == [True]


def test_piled_up_files_cause_back_pressure_until_they_are_compacted(tmp_path: Path) -> None:
    disk, store, _, room = _room(tmp_path)
    room.steer_compaction()
    while _files(store) < limits.PRESSURE_FILES:
        assert not store.is_pressed
        _add_file(store)
    assert store.is_pressed
    disk.free = 64 * MEGABYTE
    room.steer_compaction()
    wait_until(lambda: not store.is_pressed, "compaction to catch up")
    assert len(store.scan()) == limits.PRESSURE_FILES
    store.close()
