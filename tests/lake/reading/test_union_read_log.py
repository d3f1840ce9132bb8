"""Reads of lake and log of log tables: whole tables, older snapshots, rows that expired from the log."""

from __future__ import annotations

import asyncio
import datetime as dt
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest

import fluss
from fluss import aio, col
from fluss.api.base_scanner import BaseLogScanner
from fluss.api.log_scanner import LogScanner
from fluss.errors import ErrorCode, FlussError
from tests.support.lake.tiered_tables import PEOPLE, REGIONAL, LakeTable, Rows, person
from tests.support.lake.union_reads import (
    EXPIRING,
    SERVER,
    check_reads,
    drop_partition,
    earliest,
    expire,
    opened,
    ordered,
    planned,
    rows_of,
)
from tools.waiting import wait_until


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[fluss.Database]:
    with (
        fluss.embedded(tmp_path_factory.mktemp("server") / "data", tablets=2, config=SERVER) as cluster,
        fluss.connect(cluster.bootstrap_servers) as db,
    ):
        yield db


def people(start: int, stop: int, **more: Any) -> Rows:
    return [person(n, **more) for n in range(start, stop)]


@pytest.mark.parametrize("regions", [(), ("eu", "us")], ids=["plain", "partitioned"])
def test_lake_then_log(db: fluss.Database, regions: tuple[str, ...]) -> None:
    table = LakeTable(db, REGIONAL if regions else PEOPLE, partitions=regions)

    def rows(start: int, stop: int) -> Rows:
        return [person(n, **({"region": regions[n % 2]} if regions else {})) for n in range(start, stop)]

    check_reads(table, [])
    db.append(table.name, rows(0, 60))
    check_reads(table, rows(0, 60))  # nothing is tiered yet
    table.tier()
    check_reads(table, rows(0, 60))
    db.append(table.name, rows(60, 100))
    check_reads(table, rows(0, 100))
    check_reads(table, rows(50, 70), ["age", "id"], where=(col("id") >= 50) & (col("id") < 70))
    assert rows_of(table, read_optimized=True) == ordered(rows(0, 60))
    assert rows_of(table, union=False) == ordered(rows(0, 100))
    for limit in (1, 60, 99, 100, 1000):
        found = rows_of(table, limit=limit)
        assert len(found) == min(limit, 100)
        assert len({row["id"] for row in found}) == len(found)
    table.tier()
    table.check(rows(0, 100))
    check_reads(table, rows(0, 100))


def test_rows_of_a_bucket_are_ordered_by_offset(db: fluss.Database) -> None:
    table = LakeTable(db, bucket_count=1)
    for start in range(0, 120, 10):
        db.append(table.name, people(start, start + 10))
        if start < 110:
            table.tier()
    assert len(planned(table).splits[0].files) == 11
    assert db.to_arrow(table.name).column("id").to_pylist() == list(range(120))
    assert db.to_arrow(table.name, limit=115).column("id").to_pylist() == list(range(115))


def test_all_apis_read_the_same(db: fluss.Database) -> None:
    table = LakeTable(db)
    db.append(table.name, people(0, 20))
    table.tier()
    db.append(table.name, people(20, 30))

    async def read() -> list[Any]:
        config = fluss.Config({"bootstrap.servers": db.connection._session.config.bootstrap_servers})
        async with await aio.FlussConnection.create(config) as connection:
            awaited = await connection.get_table(table.name)
            return [
                (await awaited.to_arrow()).to_pylist(),
                (await awaited.to_pandas(filter=col("id") >= 0)).to_dict("records"),
                (await awaited.to_polars(union=True)).to_dicts(),
            ]

    for rows in asyncio.run(read()):
        assert ordered(rows) == ordered(people(0, 30))


def test_partitions_that_are_only_in_the_lake_or_only_in_the_log(db: fluss.Database) -> None:
    table = LakeTable(db, REGIONAL, partitions=("eu", "us"))
    old = [person(n, region=region) for n in range(10) for region in ("eu", "us")]
    db.append(table.name, old)
    table.tier()
    db.append(table.name, people(50, 55, region="eu"))
    db.create_partition(table.name, {"region": "asia"})
    db.append(table.name, people(60, 65, region="asia"))
    drop_partition(table, "us")
    rows = [*old, *people(50, 55, region="eu"), *people(60, 65, region="asia")]
    check_reads(table, rows)
    check_reads(table, [row for row in rows if row["region"] == "us"], where=col("region") == "us")
    check_reads(table, [row for row in rows if row["id"] > 8], ["region", "id"], where=col("id") > 8)
    assert ordered(db.scan(table.name).to_pylist()) == ordered(rows), "a scan of everything finds it too"
    assert ordered(db.scan(table.name, where=col("id") > 8).to_pylist()) == ordered(r for r in rows if r["id"] > 8)
    for region in ("eu", "asia"):
        drop_partition(table, region)
    in_lake = ordered(old)
    assert rows_of(table) == in_lake, "what was not tiered before its partition was dropped by hand is gone"
    assert ordered(db.scan(table.name).to_pylist()) == in_lake


def test_a_partition_that_is_created_again(db: fluss.Database) -> None:
    """Its old rows stay in the lake, and its new ones come after them."""
    table = LakeTable(db, REGIONAL, partitions=("eu",))
    db.append(table.name, people(0, 5, region="eu"))
    table.tier()
    drop_partition(table, "eu")
    db.create_partition(table.name, {"region": "eu"})
    for start, stop in ((5, 5), (5, 8), (8, 9)):  # an empty one, its first rows, and rows after a round
        db.append(table.name, people(start, stop, region="eu"))
        rows = people(0, stop, region="eu")
        for _ in ("before", "after its round"):
            check_reads(table, rows)
            assert ordered(db.scan(table.name).to_pylist()) == ordered(rows)
            assert ordered(db.scan(table.name, since=0).to_pylist()) == ordered(rows)
            assert ordered(db.scan(table.name, where=col("id") > 3).to_pylist()) == ordered(rows[4:])
            table.tier()


@pytest.mark.parametrize("keys", [None, ["id"]], ids=["log", "keys"])
def test_time_travel(db: fluss.Database, keys: list[str] | None) -> None:
    table = LakeTable(db, primary_keys=keys)
    write = db.append if keys is None else db.upsert
    seen: list[tuple[int, int, Rows]] = []
    for start in (0, 10, 20):
        write(table.name, people(start, start + 10))
        report = table.tier()
        assert report.snapshot_id is not None
        time.sleep(0.01)  # times of snapshots are in milliseconds
        seen.append((report.snapshot_id, int(time.time() * 1000), people(0, start + 10)))
        time.sleep(0.01)
    write(table.name, people(5, 40, name="later"))
    for snapshot_id, at, rows in seen:
        assert rows_of(table, lake_snapshot=snapshot_id) == ordered(rows)
        assert rows_of(table, as_of=at) == ordered(rows)
        assert rows_of(table, as_of=dt.datetime.fromtimestamp(at / 1000, dt.UTC)) == ordered(rows)
        assert len(rows_of(table, ["id"], lake_snapshot=snapshot_id, where=col("id") < 5)) == 5
    with pytest.raises(FlussError, match="no snapshot from 1000 ms") as caught:
        rows_of(table, as_of=1000)
    assert caught.value.error_code == ErrorCode.LAKE_SNAPSHOT_NOT_EXIST
    with pytest.raises(FlussError, match="has no snapshot 7") as caught:
        rows_of(table, lake_snapshot=7)
    assert caught.value.error_code == ErrorCode.LAKE_SNAPSHOT_NOT_EXIST


def test_invalid_options(db: fluss.Database) -> None:
    table = LakeTable(db)
    for options, text in (
        ({"lake_snapshot": "1"}, "the id of a snapshot"),
        ({"lake_snapshot": 1, "as_of": 1}, "give only one of them"),
        ({"as_of": dt.datetime(2026, 1, 1)}, "time zone"),
        ({"as_of": "yesterday"}, "milliseconds"),
        ({"union": True, "read_optimized": True}, "union is for"),
    ):
        with pytest.raises(FlussError, match=text):
            rows_of(table, **options)
    db.create_table("fluss.no_lake", PEOPLE)
    db.append("fluss.no_lake", people(0, 3))
    assert ordered(db.to_arrow("fluss.no_lake", union=True).to_pylist()) == ordered(people(0, 3))
    with pytest.raises(FlussError, match="has no Iceberg lake") as caught:
        db.to_arrow("fluss.no_lake", read_optimized=True)
    assert caught.value.error_code == ErrorCode.LAKE_STORAGE_NOT_CONFIGURED_EXCEPTION


# ---- what has expired from the log ----


@pytest.fixture(scope="module")
def expired(db: fluss.Database) -> tuple[LakeTable, Rows]:
    """A table whose log begins after offset 100; everything is tiered except its newest rows."""
    table, rows, write = expiring(db)
    expire(table, write, 100)
    write()
    return table, rows


def expiring(db: fluss.Database) -> tuple[LakeTable, Rows, Callable[[], None]]:
    """A table whose tiered rows expire after a second, its written rows, and a function that writes more."""
    table = LakeTable(db, bucket_count=1, properties=EXPIRING)
    rows: Rows = []

    def write() -> None:
        more = people(len(rows), len(rows) + 50, name="x" * 60)
        db.append(table.name, more)
        rows.extend(more)

    write()
    return table, rows, write


async def awaited(table: LakeTable, subscribe: Callable[[BaseLogScanner], None]) -> Any:
    """The rows that an async scanner reads."""
    config = fluss.Config({"bootstrap.servers": table.db.connection._session.config.bootstrap_servers})
    async with await aio.FlussConnection.create(config) as connection:
        scan = (await connection.get_table(table.name)).new_scan()
        scanner = await scan.create_record_batch_log_scanner()
        subscribe(scanner)
        return await scanner.to_arrow()


def scanner_of(table: LakeTable, columns: list[str] | None = None) -> LogScanner:
    scan = opened(table).new_scan()
    return asyncio.run((scan.project_by_name(columns) if columns else scan).create_record_batch_log_scanner())


def test_a_whole_table_whose_log_has_expired(expired: tuple[LakeTable, Rows]) -> None:
    table, rows = expired
    check_reads(table, rows)
    check_reads(table, rows[40:60], ["id"], where=(col("id") >= 40) & (col("id") < 60))
    assert rows_of(table, union=False) != ordered(rows)
    assert table.db.to_arrow(table.name).column("id").to_pylist() == list(range(len(rows)))


def test_bounded_scans_find_expired_rows(expired: tuple[LakeTable, Rows]) -> None:
    table, rows = expired
    ids = list(range(len(rows)))
    assert table.db.scan(table.name).column("id").to_pylist() == ids
    assert table.db.scan(table.name, ["id"], where=col("id") < 30).column("id").to_pylist() == ids[:30]
    with scanner_of(table, ["id"]) as scanner:
        scanner.subscribe(0, fluss.EARLIEST_OFFSET)
        assert scanner.to_arrow().column("id").to_pylist() == ids
        assert scanner.to_pandas().empty, "rows are not read twice"
    for offset in (0, 7, 99, earliest(table), len(rows) - 1):
        with scanner_of(table) as scanner:
            scanner.subscribe_buckets({0: offset})
            assert scanner.to_arrow().column("id").to_pylist() == ids[offset:]
    with scanner_of(table) as scanner:
        scanner.subscribe_all()
        reader = scanner.to_arrow_batch_reader()
        assert reader.read_all().column("id").to_pylist() == ids
        assert scanner.get_subscribed_buckets()[0][1] == len(rows)
    found = asyncio.run(awaited(table, lambda scanner: scanner.subscribe_all()))
    assert found.column("id").to_pylist() == ids


@pytest.mark.parametrize("start", [pytest.param(fluss.EARLIEST_OFFSET, marks=pytest.mark.all), 20])
def test_rows_that_expire_while_a_bounded_scan_begins_come_from_the_lake(db: fluss.Database, start: int) -> None:
    """When rows are fetched, the log begins later than when the scan asked for its beginning."""
    table, rows, write = expiring(db)
    if start >= 0:
        expire(table, write, start)

    def expires_in_between(scanner: BaseLogScanner) -> None:
        core = scanner._core
        move = core.move

        def late(offsets: Mapping[fluss.TableBucket, int]) -> None:
            core.move = move  # type: ignore[method-assign]
            with ThreadPoolExecutor(1) as other:  # here an event loop may run
                other.submit(expire, table, write, max(offsets.values())).result()
            move(offsets)

        core.move = late  # type: ignore[method-assign]
        scanner.subscribe(0, start)

    def blocking(read: Callable[[LogScanner], Any]) -> Any:
        with scanner_of(table) as scanner:
            expires_in_between(scanner)
            return read(scanner)

    for found in (
        blocking(LogScanner.to_arrow),
        blocking(lambda scanner: scanner.to_arrow_batch_reader().read_all()),
        asyncio.run(awaited(table, expires_in_between)),
    ):
        ids = found.column("id").to_pylist()
        assert ids == list(range(max(start, 0), ids[-1] + 1))
    assert ids[-1] == len(rows) - 1


def test_scans_from_a_time_that_has_expired(expired: tuple[LakeTable, Rows]) -> None:
    table, rows = expired
    times = [row["__timestamp"] for row in table.lake_rows(["__offset", "__timestamp"])]
    assert table.db.scan(table.name, since=times[0]).num_rows == len(rows)
    since = times[75]
    expected = [n for n in range(len(rows)) if n >= len(times) or times[n] >= since]
    assert table.db.scan(table.name, since=since).column("id").to_pylist() == expected


def test_polls_follow_the_log_only(expired: tuple[LakeTable, Rows]) -> None:
    """`poll` returns rows of the server: an expired offset is code 19, the earliest is that of the log."""
    table, rows = expired
    with scanner_of(table) as scanner:
        scanner.subscribe(0, 5)
        with pytest.raises(FlussError) as caught:
            scanner.poll_arrow(10_000)
        assert caught.value.error_code == ErrorCode.LOG_OFFSET_OUT_OF_RANGE_EXCEPTION
    with scanner_of(table) as scanner:
        scanner.subscribe(0, fluss.EARLIEST_OFFSET)
        first = scanner.poll_arrow(10_000)
        assert first.column("id")[0].as_py() > 100
        polled = first.column("id").to_pylist()
        rest = scanner.to_arrow().column("id").to_pylist()
        assert polled + rest == list(range(polled[0], len(rows))), "a scan goes on where its polls were"


def test_rows_that_expired_before_they_were_tiered(db: fluss.Database) -> None:
    """Possible while the lake is disabled: never ignored silently."""
    table = LakeTable(db, bucket_count=1, properties=EXPIRING)
    db.append(table.name, people(0, 10))
    table.tier()
    db.alter_table(table.name, set_properties={"table.datalake.enabled": "false"})

    def is_expired() -> bool:
        db.append(table.name, people(10, 60, name="x" * 60))
        return bool(earliest(table) > 10)

    wait_until(is_expired, "the rows that were not tiered expire", seen=lambda: earliest(table))
    db.alter_table(table.name, set_properties={"table.datalake.enabled": "true"})
    for read in (lambda: rows_of(table), lambda: db.scan(table.name)):
        with pytest.raises(FlussError, match="expired before they were tiered") as caught:
            read()
        assert caught.value.error_code == ErrorCode.LOG_OFFSET_OUT_OF_RANGE_EXCEPTION
    assert rows_of(table, read_optimized=True) == ordered(people(0, 10))
    assert rows_of(table, union=False)


def test_empty_results_have_the_columns(db: fluss.Database) -> None:
    table = LakeTable(db)
    db.append(table.name, people(0, 3))
    table.tier()
    for options in ({}, {"read_optimized": True}, {"union": True}):
        found = db.to_arrow(table.name, ["name", "id"], where=col("id") > 100, **options)
        assert (found.num_rows, found.column_names) == (0, ["name", "id"])
        assert found.schema.field("id").type == pa.int64()
