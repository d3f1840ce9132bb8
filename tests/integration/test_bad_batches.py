"""Batches that were stored although they cannot be read: scans name them, and go past them when they are told to."""

from __future__ import annotations

import asyncio
import datetime
import logging
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import fluss
import fluss.aio
from fluss.codec.batches.log_batch import read_header
from fluss.errors import ErrorCode, FlussError
from tests.support.servers.log_cluster import LogCluster
from tests.support.values import invalid_batches
from tools.waiting import patience

TIMEOUT_MS = int(patience(60) * 1000)
BEHIND_THE_CALENDAR_MS = 10**15
PROPERTIES_OF = {
    kind: {"table.log.arrow.compression.type": kind}
    if kind in ("NONE", "ZSTD", "LZ4_FRAME")
    else {"table.log.format": kind}
    for kind in ("NONE", "ZSTD", "LZ4_FRAME", "INDEXED", "COMPACTED")
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LogCluster]:
    with LogCluster(tmp_path_factory.mktemp("server")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def db(cluster: LogCluster) -> Iterator[fluss.Database]:
    with fluss.connect(cluster.cluster.bootstrap_servers) as db:
        yield db


def stored(cluster: LogCluster, db: fluss.Database, name: str, bad: str | None, stored_as: str = "NONE") -> str:
    """A table with offsets 0 to 2, then 3 to 5 of which the last has a bad value, then 6 to 8."""
    db.create_table(name, invalid_batches.SCHEMA, properties=PROPERTIES_OF[stored_as], bucket_count=1)
    for start, column in ((0, None), (3, bad), (6, None)):
        batch = invalid_batches.batch_stored_as(stored_as, list(range(start, start + 3)), column)
        answer = cluster.tablet.produce(cluster.table_id(name), 0, batch)
        assert not answer.HasField("error_code"), answer.error_message
    return name


def scanner(db: fluss.Database, name: str, **rule: object) -> fluss.LogScanner:
    scan = db._open(name).new_scan()
    made: fluss.LogScanner = (scan.on_bad_batch(**rule) if rule else scan)._log_scanner(records=True)  # type: ignore[arg-type]
    made.subscribe(0, 0)
    return made


def polled(source: fluss.LogScanner, count: int) -> list[int]:
    ids: list[int] = []
    while len(ids) < count:
        found = [record.row["id"] for record in source.poll(TIMEOUT_MS)]
        assert found, "rows came too late"
        ids += found
    return ids


@pytest.mark.parametrize("bad", invalid_batches.BAD_COLUMNS)
def test_the_error_names_bucket_and_offsets(cluster: LogCluster, db: fluss.Database, bad: str) -> None:
    name = stored(cluster, db, f"named_{bad}", bad)
    with scanner(db, name) as source:
        assert polled(source, 3) == [0, 1, 2]
        for _ in range(2):
            with pytest.raises(FlussError, match=r"bucket=0\) of fluss.named_\w+: the batch of offsets 3 to 5") as e:
                source.poll(TIMEOUT_MS)
            assert e.value.error_code == ErrorCode.CORRUPT_RECORD_EXCEPTION
        source.subscribe(0, 6)
        assert polled(source, 3) == [6, 7, 8]


@pytest.mark.parametrize("bad", invalid_batches.BAD_COLUMNS)
def test_skipping_reads_on_and_tells(cluster: LogCluster, db: fluss.Database, bad: str) -> None:
    name = stored(cluster, db, f"skipped_{bad}", bad)
    skipped: list[fluss.BadBatch] = []
    with scanner(db, name, on_bad_batch="skip", callback=skipped.append) as source:
        assert polled(source, 6) == [0, 1, 2, 6, 7, 8]
        assert source.get_subscribed_buckets()[0][1] == 9
    (batch,) = skipped
    assert (batch.first_offset, batch.last_offset, batch.bucket.bucket_id) == (3, 5, 0)
    assert str(batch.table_path) == f"fluss.{name}"
    assert batch.error.error_code == ErrorCode.CORRUPT_RECORD_EXCEPTION


def test_whole_reads_skip_too_and_warn(
    cluster: LogCluster, db: fluss.Database, caplog: pytest.LogCaptureFixture
) -> None:
    name = stored(cluster, db, "warned", "at")
    with pytest.raises(FlussError, match="offsets 3 to 5"):
        db.scan(name)
    assert db.scan(name, ["id"])["id"].to_pylist() == list(range(9)), "the bad column is not asked for"
    with caplog.at_level(logging.WARNING, logger="fluss"):
        assert db.scan(name, on_bad_batch="skip")["id"].to_pylist() == [0, 1, 2, 6, 7, 8]
    assert "skipped offsets 3 to 5: " in caplog.text
    followed = db.follow(name, ["at"], start_offset=4, on_bad_batch="skip")
    assert next(followed).base_offset == 6


def test_a_callback_that_raises_loses_no_row(cluster: LogCluster, db: fluss.Database) -> None:
    name = stored(cluster, db, "raising", "name")

    def refuse(batch: fluss.BadBatch) -> None:
        raise RuntimeError(f"stop at {batch.first_offset}")

    with scanner(db, name, on_bad_batch="skip", callback=refuse) as source:
        assert polled(source, 3) == [0, 1, 2]
        with pytest.raises(RuntimeError, match="stop at 3"):
            source.poll(TIMEOUT_MS)
        assert polled(source, 3) == [6, 7, 8]


def test_aio_skips_too(cluster: LogCluster, db: fluss.Database) -> None:
    name = stored(cluster, db, "aio", "price")

    async def body() -> list[int]:
        config = fluss.Config({"bootstrap.servers": cluster.cluster.bootstrap_servers})
        async with await fluss.aio.FlussConnection.create(config) as connection:
            table = await connection.get_table(f"fluss.{name}")
            source = await table.new_scan().on_bad_batch("skip").create_record_batch_log_scanner()
            source.subscribe(0, 0)
            found: list[int] = (await source.to_arrow())["id"].to_pylist()
            return found

    assert asyncio.run(body()) == [0, 1, 2, 6, 7, 8]


@pytest.mark.parametrize("stored_as", PROPERTIES_OF)
def test_every_form_of_a_log_is_skipped(cluster: LogCluster, db: fluss.Database, stored_as: str) -> None:
    name = stored(cluster, db, f"form_{stored_as}", "name", stored_as)
    with pytest.raises(FlussError, match="offsets 3 to 5"):
        db.scan(name)
    for columns, where, ids in (
        (None, None, [0, 1, 2, 6, 7, 8]),
        (["name", "id"], None, [0, 1, 2, 6, 7, 8]),
        (None, fluss.col("id") > 1, [2, 6, 7, 8]),
        (["id"], fluss.col("name") == "name 7", [7]),
    ):
        found = db.scan(name, columns, where=where, on_bad_batch="skip")
        assert found["id"].to_pylist() == ids, (columns, where)


def test_a_limit_scan_skips_and_tells_in_the_callers_thread(cluster: LogCluster, db: fluss.Database) -> None:
    name = stored(cluster, db, "limited", "price")
    scan, bucket = db._open(name).new_scan().limit(5), fluss.TableBucket(cluster.table_id(name), 0)
    with pytest.raises(FlussError, match="offsets 3 to 5"):
        scan.create_bucket_batch_scanner(bucket).to_arrow()
    told: list[tuple[int, int, threading.Thread]] = []

    def note(batch: fluss.BadBatch) -> None:
        assert db.info(name), "the client may be called from here"
        told.append((batch.first_offset, batch.last_offset, threading.current_thread()))

    found = scan.on_bad_batch("skip", note).create_bucket_batch_scanner(bucket).to_arrow()
    assert found["id"].to_pylist() == [6, 7, 8]
    assert told == [(3, 5, threading.current_thread())]

    def refuse(batch: fluss.BadBatch) -> None:
        raise RuntimeError("stop")

    source = scan.on_bad_batch("skip", refuse).create_bucket_batch_scanner(bucket)
    with pytest.raises(RuntimeError, match="stop"):
        source.next_batch()
    assert source.to_arrow()["id"].to_pylist() == [6, 7, 8]
    assert source.next_batch() is None


def test_a_limit_scan_of_aio_tells_in_the_loop(cluster: LogCluster, db: fluss.Database) -> None:
    name = stored(cluster, db, "aio_limited", "at")
    told: list[threading.Thread] = []

    async def body() -> list[int]:
        config = fluss.Config({"bootstrap.servers": cluster.cluster.bootstrap_servers})
        async with await fluss.aio.FlussConnection.create(config) as connection:
            table = await connection.get_table(f"fluss.{name}")
            scan = table.new_scan().limit(9).on_bad_batch("skip", lambda _: told.append(threading.current_thread()))
            source = scan.create_bucket_batch_scanner(fluss.TableBucket(cluster.table_id(name), 0))
            found: list[int] = (await source.to_arrow())["id"].to_pylist()
            return found

    assert asyncio.run(body()) == [0, 1, 2, 6, 7, 8]
    assert told == [threading.current_thread()]


@pytest.mark.parametrize("place", [8, 12, 21, 44], ids=["length", "magic", "checksum", "record count"])
def test_a_file_that_was_damaged_on_disk(tmp_path: Path, place: int) -> None:
    """The server says which offsets cannot be read: scans skip them, and errors of limit scans name them."""
    with LogCluster(tmp_path) as cluster:
        with fluss.connect(cluster.cluster.bootstrap_servers) as db:
            name = stored(cluster, db, "on_disk", None)
        (log,) = (path for path in tmp_path.rglob("*.log") if path.stat().st_size)
        cluster.stop()
        content = bytearray(log.read_bytes())
        content[read_header(content).size + place] ^= 0x10
        log.write_bytes(content)
        cluster.start()
        with fluss.connect(cluster.cluster.bootstrap_servers) as db:
            for columns in (None, ["id"]):
                with pytest.raises(FlussError, match="offsets 3 to 5"):
                    db.scan(name, columns)
            skipped: list[fluss.BadBatch] = []
            with scanner(db, name, on_bad_batch="skip", callback=skipped.append) as source:
                assert polled(source, 6) == [0, 1, 2, 6, 7, 8]
            assert [(bad.first_offset, bad.last_offset) for bad in skipped] == [(3, 5)]
            assert db.scan(name, ["id"], on_bad_batch="skip")["id"].to_pylist() == [0, 1, 2, 6, 7, 8]
            limited = db._open(name).new_scan().limit(7)
            with pytest.raises(FlussError, match="offsets 3 to 5"):
                limited.create_bucket_batch_scanner(fluss.TableBucket(cluster.table_id(name), 0)).to_arrow()


def test_wrong_rules_are_refused(db: fluss.Database) -> None:
    db.create_table("rules", invalid_batches.SCHEMA)
    scan = db._open("rules").new_scan()
    with pytest.raises(FlussError, match="'error' or 'skip', got 'ignore'"):
        scan.on_bad_batch("ignore")
    with pytest.raises(FlussError, match="only allowed with"):
        scan.on_bad_batch("error", print)
    with pytest.raises(FlussError, match="takes a BadBatch"):
        scan.on_bad_batch("skip", 3)  # type: ignore[arg-type]
    assert scan.on_bad_batch("skip").on_bad_batch("error")._plan.on_skipped is None


def test_a_time_that_python_cannot_hold_costs_one_record(db: fluss.Database) -> None:
    schema = pa.schema([("id", pa.int32()), ("at", pa.timestamp("ms"))])
    db.create_table("calendar", schema, bucket_count=1)
    far = BEHIND_THE_CALENDAR_MS
    db.append(
        "calendar",
        pa.table([pa.array(range(4), pa.int32()), pa.array([0, far, 0, None], pa.timestamp("ms"))], schema=schema),
    )
    with scanner(db, "calendar") as source:
        records = list(source.poll(TIMEOUT_MS))
    assert [record.offset for record in records] == [0, 1, 2, 3]
    epoch = datetime.datetime(1970, 1, 1)
    assert [records[index].row for index in (0, 2, 3)] == [
        {"id": 0, "at": epoch},
        {"id": 2, "at": epoch},
        {"id": 3, "at": None},
    ]
    with pytest.raises(FlussError, match=r"offset 1 of .*years 1 to 9999"):
        _ = records[1].row
    assert "years 1 to 9999" in repr(records[1])
    assert records[1] != records[0]
