"""A data directory with every kind of file that a server writes, as a killed server leaves it.

Log, primary-key, partitioned, tiered and lake tables, staged rows, snapshots, remote segments, a safety copy of the
catalog. `older` is the same directory some time before, for disks and people who put back yesterday's file. A lake and
the snapshots of primary-key tables know their files by absolute paths, so cases are played in the very place where the
server wrote.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

import fluss
from fluss.api.staged import StagedAppender, StagedAttempt
from fluss.server.catalog.mark import read_mark, write_mark
from fluss.server.catalog.safety_copies import make_copy
from fluss.server.storage.log import synced_mark
from fluss.server.tablet.kv_snapshots.record import read_record
from tests.support.lake.tiered_tables import LAKE, OPTIONS, tiering_service
from tests.support.storage.faulty_files import NoSyncFiles
from tools.waiting import patience, wait_until

COLUMNS = pa.schema([pa.field("id", pa.int64(), False), ("text", pa.string())])
REGIONAL = pa.schema([pa.field("region", pa.string(), False), *COLUMNS])
STAGED_ROWS = [(number, f"staged {number}") for number in range(1000, 1010)]
TRANSACTION = "nightly"
BATCH_ROWS = 20
QUIET = {
    "log.segment.file-size": "4kb",
    "log.index.interval-size": "256b",
    "remote.log.task-interval-duration": "0s",
    "kv.snapshot.interval": "0s",
}
BUSY = {**QUIET, "remote.log.task-interval-duration": "20ms", "kv.snapshot.interval": "50ms"}


@dataclass(frozen=True)
class Kept:
    """Where the directories are and what every table has."""

    place: Path
    pristine: Path
    older: Path
    tables: dict[str, list[Any]]
    attempt: StagedAttempt

    def put_back(self) -> None:
        """The directory as the killed server left it, in its place."""
        shutil.rmtree(self.place, ignore_errors=True)
        shutil.copytree(self.pristine, self.place)
        # A copy of a directory is known by its inodes and treated with more patience; this one is the original.
        mark = read_mark(self.place)
        assert mark is not None
        write_mark(self.place, mark.catalog_id, mark.counters, NoSyncFiles(), mark.databases)
        for path in self.place.rglob(synced_mark.MARK_NAME):
            synced = synced_mark.decode_mark(path.read_bytes())
            assert synced is not None
            synced = synced._replace(directory_inode=path.parent.stat().st_ino)
            path.write_bytes(synced_mark.encode_mark(synced))


def options(place: Path, settings: dict[str, str]) -> dict[str, str]:
    return {**settings, "remote.data.dir": str(place / "remote")}


def make_directory(root: Path) -> Kept:
    """Three runs of an embedded server: rows; uploads, tiering and a snapshot; more rows, and it is killed.

    Nothing is written while snapshots are taken, so there is one, and no garbage that would be removed some time later.
    """
    place = root / "data"
    with fluss.embedded(place, config=options(place, QUIET)) as server, connect(server.bootstrap_servers) as db:
        _create_tables(db)
        _write(db, 0)
    with fluss.embedded(place, config=options(place, BUSY)) as server, connect(server.bootstrap_servers) as db:
        with tiering_service(db, replace(OPTIONS, cores=1)) as service:
            list(service.once())
        wait_until(lambda: _is_in_remote_storage(place), "rows and snapshots are in remote storage")
    older = root / "older"
    shutil.copytree(place, older)
    with fluss.embedded(place, config=options(place, QUIET)) as server, connect(server.bootstrap_servers) as db:
        _write(db, 1)
        db.create_table("late", COLUMNS, bucket_count=1)
        make_copy(place)
        attempt = _stage(db)
        tables = {name: reader(db) for name, reader in READERS.items()}
        pristine = root / "pristine"
        # The mark is written some time after the change; its unfinished file may go while it is copied.
        shutil.copytree(place, pristine, ignore=shutil.ignore_patterns("*.tmp"))
    return Kept(place, pristine, older, tables, attempt)


def connect(address: str) -> fluss.Database:
    return fluss.connect(address, request_timeout=int(patience(20_000)), writer_retries=1)


def rows(first: int, after: int) -> list[dict[str, Any]]:
    return [{"id": number, "text": f"text of {number} " * (1 + number % 3)} for number in range(first, after)]


def _create_tables(db: fluss.Database) -> None:
    db.create_table("log", COLUMNS, bucket_count=1, properties={"table.log.tiered.local-segments": "1"})
    db.create_table("lake", COLUMNS, bucket_count=1, properties=LAKE)
    db.create_table("keys", REGIONAL, primary_keys=["region", "id"], partition_keys=["region"], bucket_count=1)
    db.create_partition("keys", {"region": "asia"})


def _write(db: fluss.Database, run: int) -> None:
    for first in range(run * 200, run * 200 + 200, BATCH_ROWS):
        plain = rows(first, first + BATCH_ROWS)
        db.append("log", plain)
        db.upsert("keys", [{"region": "asia", **row, "id": row["id"] // 2} for row in plain])
    db.append("lake", rows(run * 20, run * 20 + 20))
    db.delete("keys", [("asia", run * 7)])


def _stage(db: fluss.Database) -> StagedAttempt:
    with StagedAppender(open_table(db, "log"), TRANSACTION, 0) as appender:
        ids, texts = zip(*STAGED_ROWS, strict=True)
        appender.write_arrow_batch(pa.RecordBatch.from_arrays([pa.array(ids), pa.array(texts)], schema=COLUMNS))
        return appender.finish(patience(30.0))


def open_table(db: fluss.Database, name: str) -> fluss.FlussTable:
    async def opened() -> fluss.FlussTable:
        return await db.connection.get_table(fluss.TablePath("fluss", name))

    return asyncio.run(opened())


def _is_in_remote_storage(place: Path) -> bool:
    is_gone = not (place / "data" / "fluss" / "log-0" / "log-0" / f"{0:020d}.log").exists()
    (bucket,) = (place / "data" / "fluss").glob("keys-*/asia-*/log-0")
    record = read_record(bucket)
    if not is_gone or record is None or record.registered_id + 1 != record.next_snapshot_id:
        return False
    snapshots = [path.parent.name for path in (place / "remote" / "kv").rglob("_METADATA")]
    return snapshots == [f"snap-{record.registered_id}"]


def _rows(db: fluss.Database, name: str) -> list[Any]:
    return sorted(tuple(row.values()) for row in db.to_arrow(name).to_pylist())


def _changes(db: fluss.Database, name: str) -> list[Any]:
    """The changelog of the one partition up to the end that the server says it has; every offset is one record."""

    async def end_of() -> int:
        offsets = await db.connection.get_admin().list_partition_offsets(
            f"fluss.{name}", "asia", [0], fluss.OffsetSpec.latest()
        )
        return offsets[0]

    end, found = asyncio.run(end_of()), list[Any]()
    with asyncio.run(open_table(db, name).new_scan().create_log_scanner()) as scanner:
        scanner.subscribe_all()
        while not found or found[-1][0] < end - 1:
            records = scanner.poll(int(patience(10_000)))
            if records.is_empty():
                raise AssertionError(f"the log of {name} has {end} records, after {len(found)} none came")
            found += [
                (item.offset, str(item.change_type), *item.row.values()) for _, each in records.items() for item in each
            ]
    return found


READERS: dict[str, Callable[[fluss.Database], list[Any]]] = {
    "log": lambda db: _rows(db, "log"),
    "lake": lambda db: _rows(db, "lake"),
    "keys": lambda db: _rows(db, "keys"),
    "changelog": lambda db: _changes(db, "keys"),
}
