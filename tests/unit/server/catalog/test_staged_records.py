"""Decisions, work and revocations in the catalog file."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from fluss.errors import ErrorCode, FlussError
from fluss.model.descriptor import table_descriptor_from_json
from fluss.model.paths import TableBucket, TablePath
from fluss.server.catalog import CatalogStore, staged_records
from fluss.server.catalog.staged_records import Decision, StagedFileEntry
from tools.servers.messages import table_document, text_column

FILE = StagedFileEntry(7, 2, 300)


def make_table(store: CatalogStore, name: str = "t") -> int:
    document = table_document([text_column("p")], partition_key=("p",), bucket_count=2)
    return store.create_table(TablePath("fluss", name), table_descriptor_from_json(document), 1)


def decide(store: CatalogStore, table: int, batch_id: int, token: str = "a", name: str = "q", **more: int) -> Decision:
    writer_id = more.get("writer_id", 7)
    files = [(TableBucket(table, more.get("partition"), 0), [FILE._replace(writer_id=writer_id)])]
    return store.staged.decide(table, name, batch_id, token, files, more.get("now", 5))


def test_a_decision_is_seen_by_other_processes_and_applied_once(
    store: CatalogStore, open_store: Callable[[], CatalogStore]
) -> None:
    other = open_store()
    table = make_table(store)
    before = other.staged.work_counter()
    assert decide(store, table, 3) == (True, 3)
    assert decide(store, table, 3) == (True, 3), "the same call again"
    assert decide(store, table, 3, "b") == (False, 3)
    assert decide(store, table, 2, "a") == (False, 3)
    assert other.staged.work_counter() > before
    (work,) = other.staged.work()
    assert (work.bucket, work.transaction, work.batch_id, work.files) == (TableBucket(table, None, 0), "q", 3, (FILE,))
    assert other.staged.unapplied_buckets(table, "q") == 1
    other.staged.applied([work.work_id])
    assert (store.staged.work(), store.staged.unapplied_buckets(table, "q")) == ([], 0)
    assert store.staged.last_batch_id(table, "q") == 3
    assert decide(store, table, 4, writer_id=8) == (True, 4)
    assert store.staged.work()[0].work_id > work.work_id, "numbers of work are never used again"


def test_an_attempt_is_decided_or_revoked_and_never_both(store: CatalogStore) -> None:
    table = make_table(store)
    assert decide(store, table, 0, writer_id=7).accepted
    assert store.staged.revoke([7, 8]) == {8}
    with pytest.raises(FlussError, match="attempt 8 was aborted") as caught:
        decide(store, table, 1, writer_id=8)
    assert caught.value.error_code == ErrorCode.UNKNOWN_WRITER_ID_EXCEPTION
    assert store.staged.last_batch_id(table, "q") == 0
    assert decide(store, table, 1, writer_id=9).accepted


def test_revoked_attempts_are_bounded_and_old_ones_stay_revoked(
    store: CatalogStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staged_records, "REVOKED_LIMIT_ROWS", 3)
    table = make_table(store)
    for writer_id in (10, 20, 30, 40, 50):
        store.staged.revoke([writer_id])
    (count,) = store.file.connection.execute("SELECT count(*) FROM staged_revoked").fetchone()
    assert count == 3
    for writer_id in (10, 15, 20, 30, 40, 50):
        with pytest.raises(FlussError):
            decide(store, table, 0, writer_id=writer_id)
    assert decide(store, table, 0, writer_id=21).accepted
    assert decide(store, table, 1, writer_id=51).accepted


def test_transactions_are_bounded_and_the_least_recent_are_evicted(
    store: CatalogStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staged_records, "TRANSACTIONS_PER_TABLE_LIMIT_ROWS", 10)
    table = make_table(store)
    for number in range(10):
        decide(store, table, number, name=f"q{number}", now=100 - number)
    decide(store, table, 20, name="q9", now=200)
    decide(store, table, 0, name="new", now=300)
    known = [number for number in range(10) if store.staged.last_batch_id(table, f"q{number}") is not None]
    assert known == [0, 1, 2, 3, 4, 5, 6, 7, 9]


def test_everything_is_removed_with_its_table_or_partition(store: CatalogStore) -> None:
    table, other = make_table(store), make_table(store, "other")
    partitions = store.create_partitions(TablePath("fluss", "t"), table, ["a", "b"])
    for number, partition in enumerate(partitions):
        decide(store, table, number, partition=partition, writer_id=number)
    decide(store, other, 0, writer_id=9)
    store.drop_partitions(TablePath("fluss", "t"), table, ["a"])
    assert [(work.bucket.table_id, work.batch_id) for work in store.staged.work()] == [(table, 1), (other, 0)]
    store.drop_table(TablePath("fluss", "t"))
    assert [work.bucket.table_id for work in store.staged.work()] == [other]
    assert store.staged.last_batch_id(table, "q") is None


def test_a_catalog_from_before_gets_its_tables(tmp_path: Path) -> None:
    path = tmp_path / "catalog.sqlite"
    CatalogStore(path).close()
    with sqlite3.connect(path) as connection:
        for table in ("staged_transactions", "staged_work", "staged_revoked"):
            connection.execute(f"DROP TABLE {table}")
    connection.close()
    store = CatalogStore(path)
    store.create_first_database("fluss", 1)
    assert decide(store, make_table(store), 0).accepted
    store.close()
