"""Staged appends through the client: exactly once on our server, clearly refused on Apache Fluss."""

from __future__ import annotations

import asyncio
import decimal
import pickle
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import fluss
from fluss import ErrorCode, FlussConnection, FlussError, FlussTable, TablePath
from fluss.api.staged import (
    StagedAppender,
    StagedAttempt,
    abort_staged,
    commit_staged,
    last_committed,
    supports_staging,
)
from tests.support.servers.targets import Target

SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.string())])
QUERY = "query"


def new_table(connection: FlussConnection, name: str, schema: Any = None, **options: Any) -> FlussTable:
    async def create() -> FlussTable:
        path = TablePath("fluss", name)
        descriptor = fluss.TableDescriptor(schema or fluss.Schema(SCHEMA), **options)
        await connection.get_admin().create_table(path, descriptor)
        return await connection.get_table(path)

    return asyncio.run(create())


def rows(*ids: int, day: str = "monday") -> pa.RecordBatch:
    return pa.record_batch([pa.array(ids, pa.int64()), pa.array([day] * len(ids))], schema=SCHEMA)


def staged(table: FlussTable, batch_id: int, *batches: pa.RecordBatch, transaction: str = QUERY) -> StagedAttempt:
    with StagedAppender(table, transaction, batch_id) as appender:
        for batch in batches:
            appender.write_arrow_batch(batch)
        attempt = appender.finish(30)
    copy: StagedAttempt = pickle.loads(pickle.dumps(attempt))
    assert copy == attempt
    return copy


def ids_in(table: FlussTable) -> Counter[int]:
    return Counter(asyncio.run(table.to_arrow()).column("id").to_pylist())


@pytest.fixture
def creating(target: Target, staging: FlussConnection) -> Iterator[FlussConnection]:
    """A connection that creates partitions when rows for them come."""
    config = target.config()
    config.writer_dynamic_create_partition_enabled = True
    with FlussConnection.open(config) as connection:
        yield connection


@pytest.fixture
def staging(target: Target, connection: FlussConnection) -> FlussConnection:
    """A connection to a server that has staged appends."""
    if target.name == "apache":
        pytest.skip("Apache Fluss has no staged appends; test_a_server_without_staging_says_so is for it")
    return connection


def test_a_server_without_staging_says_so(target: Target, connection: FlussConnection, table_name: str) -> None:
    assert supports_staging(connection) == (target.name != "apache")
    if target.name == "apache":
        table = new_table(connection, table_name)
        with pytest.raises(FlussError) as caught:
            staged(table, 0, rows(1))
        assert caught.value.error_code == ErrorCode.UNSUPPORTED_VERSION
        with pytest.raises(FlussError) as caught:
            last_committed(table, QUERY)
        assert caught.value.error_code == ErrorCode.UNSUPPORTED_VERSION


def test_batches_are_committed_once(staging: FlussConnection, table_name: str) -> None:
    table = new_table(staging, table_name, bucket_count=3)
    assert last_committed(table, QUERY) is None
    winners = [staged(table, 0, rows(1, 2), rows(3)), staged(table, 0), staged(table, 0, rows(4))]
    lost = staged(table, 0, rows(99))
    assert winners[1].writer_id is None
    assert ids_in(table) == Counter()
    assert commit_staged(table, QUERY, 0, winners)
    assert ids_in(table) == Counter([1, 2, 3, 4])
    assert not commit_staged(table, QUERY, 0, [lost])
    assert not commit_staged(table, QUERY, 0, [staged(table, 0, rows(98))]), "a repeated batch stages nothing"
    assert commit_staged(table, QUERY, 1, []), "a batch without rows counts too"
    assert last_committed(table, QUERY) == 1
    assert not commit_staged(table, QUERY, 0, winners)
    assert commit_staged(table, "another", 0, [staged(table, 0, rows(4), transaction="another")])
    assert ids_in(table) == Counter([1, 2, 3, 4, 4])


def test_partitions_are_created_on_the_way(creating: FlussConnection, table_name: str) -> None:
    table = new_table(creating, table_name, partition_keys=["day"], bucket_count=2)
    attempts = [staged(table, 0, rows(1, 2), rows(3, day="tuesday")), staged(table, 0, rows(4, day="sunday"))]
    assert {bucket.partition_id is None for attempt in attempts for bucket in attempt.buckets} == {False}
    assert commit_staged(table, QUERY, 0, attempts)
    assert ids_in(table) == Counter([1, 2, 3, 4])


def test_extra_digits_are_cut_when_asked_for(staging: FlussConnection, table_name: str) -> None:
    schema = fluss.Schema.builder().column("d", fluss.DataTypes.decimal(4, 1)).build()
    with fluss.connect(staging.config) as db:
        db.create_table(table_name, schema, bucket_count=1)
        table = db._open(table_name)
        batch = pa.record_batch({"d": [decimal.Decimal("1.99")]})
        with StagedAppender(table, QUERY, 0) as appender, pytest.raises(FlussError, match="on_extra_digits"):
            appender.write_arrow_batch(batch)
        with StagedAppender(table, QUERY, 0, on_extra_digits="truncate") as appender:
            appender.write_arrow_batch(batch)
            attempt = appender.finish()
        assert commit_staged(table, QUERY, 0, [attempt])
        assert db.to_arrow(table_name)["d"].to_pylist() == [decimal.Decimal("1.9")]


def test_an_attempt_with_a_missing_partition_leaves_nothing(
    staging: FlussConnection, target: Target, table_name: str
) -> None:
    table = new_table(staging, table_name, partition_keys=["day"], bucket_count=1)
    with fluss.connect(target.bootstrap_servers) as db:
        db.create_partition(table_name, {"day": "monday"})
        with StagedAppender(table, QUERY, 0) as appender:
            appender.write_arrow(pa.Table.from_batches([rows(1, 2), rows(3, day="tuesday"), rows(4)]))
            with pytest.raises(FlussError, match="no partition 'tuesday'"):
                appender.finish(30)
        assert db.to_arrow(table_name).num_rows == 0


def test_an_aborted_attempt_is_gone(staging: FlussConnection, table_name: str) -> None:
    table = new_table(staging, table_name)
    attempt, other = staged(table, 0, rows(1)), staged(table, 0, rows(2))
    abort_staged(table, QUERY, 0, [attempt])
    with pytest.raises(FlussError) as caught:
        commit_staged(table, QUERY, 0, [attempt, other])
    assert caught.value.error_code == ErrorCode.UNKNOWN_WRITER_ID_EXCEPTION
    assert commit_staged(table, QUERY, 0, [other])
    appender = StagedAppender(table, QUERY, 1)
    appender.write_arrow_batch(rows(3))
    appender.abort()
    with pytest.raises(FlussError, match="has ended"):
        appender.write_arrow_batch(rows(4))
    late = staged(table, 1, rows(5))
    abort_staged(table, QUERY, 1)
    with pytest.raises(FlussError):
        commit_staged(table, QUERY, 1, [late])
    assert ids_in(table) == Counter([2])


def test_rows_of_dropped_tables_and_partitions(creating: FlussConnection, table_name: str) -> None:
    table = new_table(creating, table_name, partition_keys=["day"])
    attempt = staged(table, 0, rows(1), rows(2, day="tuesday"))
    admin = creating.get_admin()
    asyncio.run(admin.drop_partition(TablePath("fluss", table_name), {"day": "tuesday"}))
    with pytest.raises(FlussError) as caught:
        commit_staged(table, QUERY, 0, [attempt])
    assert caught.value.error_code == ErrorCode.PARTITION_NOT_EXISTS
    asyncio.run(admin.drop_table(TablePath("fluss", table_name)))
    new_table(creating, table_name)
    with pytest.raises(FlussError) as caught:
        commit_staged(table, QUERY, 0, [attempt])
    assert caught.value.error_code == ErrorCode.TABLE_NOT_EXIST


def test_what_cannot_be_staged_or_committed_is_said_at_once(staging: FlussConnection, table_name: str) -> None:
    table = new_table(staging, table_name)
    keyed = new_table(staging, f"{table_name}_k", fluss.Schema(SCHEMA, ["id"]))
    for wrong in (
        lambda: StagedAppender(keyed, QUERY, 0),
        lambda: StagedAppender(table, "", 0),
        lambda: StagedAppender(table, "x" * 513, 0),
        lambda: StagedAppender(table, QUERY, -1),
        lambda: StagedAppender("t", QUERY, 0),  # type: ignore[arg-type]
        lambda: commit_staged(table, "another", 0, [staged(table, 0, rows(1))]),
        lambda: commit_staged(table, QUERY, 1, [staged(table, 0, rows(1))]),
    ):
        with pytest.raises(FlussError):
            wrong()
    with StagedAppender(table, QUERY, 0) as appender, pytest.raises(FlussError, match="column"):
        appender.write_arrow_batch(pa.record_batch({"wrong": [1]}))
    appender = StagedAppender(table, QUERY, 0)
    with pytest.raises(FlussError, match="column"):
        appender.write_arrow_batch(pa.record_batch({"wrong": [1]}))
    with pytest.raises(FlussError, match="column"):
        appender.finish()
    partitioned = new_table(staging, f"{table_name}_p", partition_keys=["day"])
    with pytest.raises(FlussError) as caught:
        staged(partitioned, 0, rows(1))
    assert caught.value.error_code == ErrorCode.PARTITION_NOT_EXISTS
    assert last_committed(table, QUERY) is None


def test_of_several_drivers_one_wins(staging: FlussConnection, table_name: str) -> None:
    table = new_table(staging, table_name, bucket_count=2)
    attempts = [staged(table, 0, rows(number)) for number in range(6)]
    results: list[bool] = []
    threads = [
        threading.Thread(target=lambda attempt=attempt: results.append(commit_staged(table, QUERY, 0, [attempt])))
        for attempt in attempts
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == [False] * 5 + [True]
    assert ids_in(table).total() == 1
