"""Every row is in the lake once, whatever else changes the lake table: rewrites, expiry, rounds of Apache Fluss."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table import Table

import fluss
from fluss.errors import ErrorCode, FlussError
from fluss.lake.coordinator_calls import TieringCalls
from fluss.lake.tables.iceberg import last_round
from fluss.lake.tables.iceberg import table as table_module
from fluss.lake.tables.iceberg.snapshot_producer import RoundProducer
from fluss.lake.tables.iceberg.table import IcebergTable
from fluss.lake.tables.interface.format import (
    COMMIT_USER,
    COMMIT_USER_PROPERTY,
    LAST_ROUND_PROPERTY,
    OFFSETS_PATH_PROPERTY,
    CommitMessage,
    LakeFile,
    LakeSplit,
)
from fluss.lake.tables.open_lake import lake_of
from fluss.model.paths import TableBucket
from tests.support.lake.tiered_tables import FAR_FUTURE_MS, LAKE, PEOPLE, LakeTable, Watching, person
from tests.support.lake.union_reads import check_reads, ordered, rows_of

KINDS = pytest.mark.parametrize("has_key", [False, True], ids=["log", "key"])


def people(start: int, stop: int) -> list[dict[str, Any]]:
    return [person(number) for number in range(start, stop)]


def write(table: LakeTable, rows: list[dict[str, Any]], has_key: bool) -> None:
    (table.db.upsert if has_key else table.db.append)(table.name, rows)


def made(db: fluss.Database, has_key: bool, **options: Any) -> LakeTable:
    return LakeTable(db, primary_keys=["id"] if has_key else None, **options)


def registered_id(table: LakeTable) -> int:
    known = TieringCalls.of(table.db.connection).snapshot(table.path)
    assert known is not None
    return known[1].snapshot_id


@contextmanager
def loaded(table: LakeTable, properties: Mapping[str, str] | None = None) -> Iterator[IcebergTable]:
    lake = lake_of(properties or table.properties)
    try:
        state = lake.load(table.path)
        assert isinstance(state, IcebergTable)
        yield state
    finally:
        lake.close()


def commit_of_others(state: IcebergTable, messages: list[CommitMessage], properties: dict[str, str]) -> Table:
    """A snapshot of another writer, which does not write our offsets."""
    transaction = state._table.transaction()
    added = [file for message in messages for file in message.added]
    removed = [file for message in messages for file in message.removed]
    RoundProducer(transaction, added, removed, [], properties).commit()
    return transaction.commit_transaction()


def rewritten(state: IcebergTable, file: LakeFile) -> CommitMessage:
    split = LakeSplit(TableBucket(0, None, file.bucket_id or 0), file.partition_name, None, 0)
    return state.target().rewrite_files(split, [file])


def rewrite(table: LakeTable, properties: Mapping[str, str] | None = None, *, keeps_property: bool = True) -> None:
    """Rewrite like another engine: the same rows in other files, and only the newest snapshot remains."""
    with loaded(table, properties) as state:
        outside = commit_of_others(state, [rewritten(state, file) for file in state.plan_files()], {})
        newest = outside.metadata.current_snapshot_id
        gone = [each.snapshot_id for each in outside.metadata.snapshots if each.snapshot_id != newest]
        outside.maintenance.expire_snapshots().by_ids(gone).commit()
        if not keeps_property:
            with outside.refresh().transaction() as transaction:
                transaction.remove_properties(LAST_ROUND_PROPERTY)


def die_before_registering(table: LakeTable) -> None:
    def die(path: object) -> None:
        raise FlussError("the end of this service")

    with pytest.raises(FlussError, match="the end of this service"):
        table.tier(watcher=Watching({"committed": die}))


@KINDS
@pytest.mark.parametrize("is_registered", [True, False], ids=["registered", "not registered"])
def test_a_table_that_was_rewritten_and_whose_rounds_have_expired(
    db: fluss.Database, has_key: bool, is_registered: bool
) -> None:
    table = made(db, has_key)
    write(table, people(0, 20), has_key)
    table.tier()
    write(table, people(20, 40), has_key)
    table.tier() if is_registered else die_before_registering(table)
    rewrite(table)
    write(table, [person(40)], has_key)
    check_reads(table, people(0, 41))
    assert rows_of(table, read_optimized=True) == ordered(people(0, 40))
    assert table.tier().rows == 1 or has_key, "only the new row; a bucket of keys is rewritten"
    table.check(people(0, 41))
    check_reads(table, people(0, 41))
    assert registered_id(table) == table.outside().metadata.current_snapshot_id
    write(table, people(41, 60), has_key)
    table.tier()
    table.check(people(0, 60))


@KINDS
def test_a_rewritten_table_that_only_the_coordinator_knows(db: fluss.Database, has_key: bool) -> None:
    """Rounds of Apache Fluss leave no property in the lake table."""
    table = made(db, has_key)
    write(table, people(0, 20), has_key)
    table.tier()
    rewrite(table, keeps_property=False)
    check_reads(table, people(0, 20))
    assert table.tier().snapshot_id is None, "there is nothing new"
    assert registered_id(table) == table.outside().metadata.current_snapshot_id, "the one that readers use now"
    write(table, people(20, 30), has_key)
    table.tier()
    table.check(people(0, 30))
    check_reads(table, people(0, 30))


def test_a_lake_that_is_enabled_again_after_a_rewrite(db: fluss.Database) -> None:
    table = made(db, has_key=False)
    write(table, people(0, 20), has_key=False)
    table.tier()
    properties = table.properties
    db.alter_table(table.name, set_properties={"table.datalake.enabled": "false"})
    rewrite(table, properties, keeps_property=False)
    write(table, people(20, 30), has_key=False)
    db.alter_table(table.name, set_properties=LAKE)
    check_reads(table, people(0, 30))
    table.tier()
    table.check(people(0, 30))


def test_offsets_of_many_buckets_outlive_their_snapshot(db: fluss.Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """The property names the same file, which is kept for that long."""
    monkeypatch.setattr(table_module, "INLINE_OFFSETS_LIMIT_BYTES", 10)
    table = made(db, has_key=False)
    write(table, people(0, 20), has_key=False)
    die_before_registering(table)
    rewrite(table)
    assert "/metadata/offsets-" in table.outside().properties[LAST_ROUND_PROPERTY]
    with loaded(table) as state:
        unknown = state.unreferenced_files(FAR_FUTURE_MS)
    assert not [path for path in unknown if "/offsets-" in path]
    write(table, people(20, 25), has_key=False)
    assert table.tier().rows == 5
    table.check(people(0, 25))


def apache_round(table: LakeTable, rows: list[dict[str, Any]], start: int, *, registers: bool = True) -> str:
    """A round of Apache Fluss on a table with one bucket: only the address of the offsets is in the lake."""
    calls, table_id = TieringCalls.of(table.db.connection), table.db.info(table.name).table_id
    path = calls.prepare(table_id, table.path, {TableBucket(table_id, None, 0): start + len(rows)})
    with loaded(table) as state:
        arrow = pa.schema([*PEOPLE, ("__offset", pa.int64()), ("__timestamp", pa.timestamp("ms", "UTC"))])
        lake_rows = [{**row, "__offset": start + index, "__timestamp": 0} for index, row in enumerate(rows)]
        split = LakeSplit(TableBucket(table_id, None, 0), None, start, start + len(rows))
        message = state.target().write_split(split, [pa.RecordBatch.from_pylist(lake_rows, arrow)])
        properties = {COMMIT_USER_PROPERTY: COMMIT_USER, OFFSETS_PATH_PROPERTY: path}
        newest = commit_of_others(state, [message], properties).current_snapshot()
    assert newest is not None
    if registers:
        calls.commit(table_id, newest.snapshot_id, path)
    return path


@KINDS
@pytest.mark.parametrize("registers", [True, False], ids=["registered", "not registered"])
def test_a_round_of_apache_fluss_between_ours(db: fluss.Database, has_key: bool, registers: bool) -> None:
    table = made(db, has_key, bucket_count=1)
    write(table, people(0, 5), has_key)
    table.tier()
    write(table, people(5, 10), has_key)
    apache_round(table, people(5, 10), 5, registers=registers)
    check_reads(table, people(0, 10))
    assert table.tier().snapshot_id is None
    write(table, people(10, 12), has_key)
    table.tier()
    table.check(people(0, 12))
    check_reads(table, people(0, 12))


def test_a_first_round_of_apache_fluss_that_is_rewritten(db: fluss.Database) -> None:
    table = made(db, has_key=False, bucket_count=1)
    write(table, people(0, 5), has_key=False)
    apache_round(table, people(0, 5), 0)
    rewrite(table)
    write(table, people(5, 7), has_key=False)
    check_reads(table, people(0, 7))
    assert table.tier().rows == 2
    table.check(people(0, 7))


def test_offsets_that_cannot_be_read_from_here(db: fluss.Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """The coordinator knows registered offsets; others are an error, never a round that starts too early."""
    table = made(db, has_key=False, bucket_count=1)
    write(table, people(0, 5), has_key=False)
    apache_round(table, people(0, 5), 0)
    hide_offsets(monkeypatch)
    write(table, people(5, 7), has_key=False)
    assert table.tier().rows == 2
    write(table, people(7, 9), has_key=False)
    apache_round(table, people(7, 9), 7, registers=False)
    with pytest.raises(FlussError, match="is not registered, and its offsets cannot be read"):
        table.tier()
    monkeypatch.undo()
    assert table.tier().snapshot_id is None
    table.check(people(0, 9))


def hide_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the offsets, as on a machine without the server's directory."""
    read = last_round._read_offsets

    def hidden(table: Any, kept: str, table_id: int) -> Any:
        if kept.endswith(".offsets"):
            raise FlussError(f"there is no {kept}", ErrorCode.STORAGE_EXCEPTION)
        return read(table, kept, table_id)

    monkeypatch.setattr(last_round, "_read_offsets", hidden)


@KINDS
def test_a_table_that_was_rolled_back_is_a_clear_error(db: fluss.Database, has_key: bool) -> None:
    table = made(db, has_key, bucket_count=1)
    write(table, people(0, 5), has_key)
    first = table.tier().snapshot_id
    assert first is not None
    write(table, people(5, 9), has_key)
    second = table.tier().snapshot_id
    table.outside().manage_snapshots().rollback_to_snapshot(first).commit()
    with pytest.raises(FlussError, match="rolled back or recreated") as caught:
        table.tier()
    assert caught.value.error_code == ErrorCode.LAKE_SNAPSHOT_NOT_EXIST
    assert str(first) in caught.value.message
    assert str(second) in caught.value.message
    table.check(people(0, 5))
    for value in ("false", "true"):
        db.alter_table(table.name, set_properties={"table.datalake.enabled": value})
    table.tier()
    table.check(people(0, 9))
