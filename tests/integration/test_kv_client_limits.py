"""Limits of the server that a client keeps to by itself: sizes of answers, scans of a bucket at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import fluss
from fluss import ErrorCode, FlussError, TablePath
from fluss.client.state import kv_scan
from fluss.model.paths import TableBucket
from fluss.server.tablet.kv import bucket_answers
from tests.support.tables.kv_tables import KvTable
from tools.waiting import patience

TEXTS = pa.schema([("id", pa.int32()), ("text", pa.string())])
ROWS = [{"id": number, "text": f"{number:04}" * 250} for number in range(200)]


@pytest.fixture(scope="module")
def connection(tmp_path_factory: pytest.TempPathFactory) -> Iterator[fluss.FlussConnection]:
    options = {"kv.scanner.max-per-bucket": "2"}
    with fluss.embedded(tmp_path_factory.mktemp("server"), config=options) as cluster:
        config = fluss.Config({"bootstrap.servers": cluster.bootstrap_servers})
        with fluss.FlussConnection.open(config) as connection:
            made = KvTable(connection, "texts", TEXTS, bucket_count=3)
            made.write(ROWS)
            yield connection


@pytest.fixture
def table(connection: fluss.FlussConnection) -> KvTable:
    return KvTable.existing(connection, "texts")


def test_lookups_whose_rows_do_not_fit_into_one_answer(table: KvTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bucket_answers, "MAX_ANSWER_BYTES", 10_000)  # nine rows

    async def body() -> None:
        lookuper = table.table.new_lookup().create_lookuper()
        numbers = range(len(ROWS))
        singles, *lists = await asyncio.gather(
            asyncio.gather(*(lookuper.lookup(number) for number in numbers)),
            *(lookuper.lookup_many(numbers) for _ in range(4)),
        )
        assert singles == ROWS
        assert lists == [ROWS] * 4
        monkeypatch.setattr(bucket_answers, "MAX_ANSWER_BYTES", 900)
        with pytest.raises(FlussError) as caught:
            await lookuper.lookup_many(numbers)
        assert caught.value.error_code == ErrorCode.RECORD_TOO_LARGE_EXCEPTION

    asyncio.run(body())


def test_many_reads_of_a_table_at_a_time(table: KvTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server allows two scans of a bucket: those of one connection wait, also for those of others."""
    monkeypatch.setattr(kv_scan, "BATCH_BYTES", 2_000)
    scan = kv_scan.KvTableScan._scan
    running: dict[TableBucket, int] = {}
    most = refused = 0
    enough = asyncio.Event()

    async def counted(self: Any, connection: Any, bucket: TableBucket, limit: int | None) -> list[Any]:
        nonlocal most, refused
        running[bucket] = running.get(bucket, 0) + 1
        most = max(most, running[bucket])
        if most == kv_scan.MAX_SCANS_PER_BUCKET:
            enough.set()
        await asyncio.wait_for(enough.wait(), patience(60))  # the first ones wait for each other
        try:
            return await scan(self, connection, bucket, limit)
        except FlussError as error:
            refused += error.error_code == ErrorCode.TOO_MANY_SCANNERS
            raise
        finally:
            running[bucket] -= 1

    monkeypatch.setattr(kv_scan.KvTableScan, "_scan", counted)

    async def body() -> None:
        reads = await asyncio.gather(*(table.table.to_arrow() for _ in range(24)))
        for read in reads:
            assert read.sort_by("id").to_pylist() == ROWS

    asyncio.run(body())
    assert most == kv_scan.MAX_SCANS_PER_BUCKET
    assert refused


def test_a_read_that_never_gets_a_scan(connection: fluss.FlussConnection, monkeypatch: pytest.MonkeyPatch) -> None:
    config = fluss.Config({"bootstrap.servers": connection.config.bootstrap_servers, "request-timeout": "5000"})
    tries = 0

    async def refused(*_: Any) -> list[Any]:
        nonlocal tries
        tries += 1
        raise FlussError("too many scans", ErrorCode.TOO_MANY_SCANNERS)

    monkeypatch.setattr(kv_scan.KvTableScan, "_scan", refused)

    async def body() -> None:
        async with await fluss.FlussConnection.create(config) as other:
            table = await other.get_table(TablePath("fluss", "texts"))
            with pytest.raises(FlussError) as caught:
                await table.to_arrow()
            assert caught.value.error_code == ErrorCode.TOO_MANY_SCANNERS

    asyncio.run(body())
    assert tries > 3
