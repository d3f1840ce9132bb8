"""Numbers of auto-increment columns: never assigned twice, and given back if unused."""

from __future__ import annotations

from collections.abc import Callable

from fluss.model.paths import TableBucket
from fluss.server.catalog import CatalogStore
from tests.support.storage.catalog_files import path_of, plain_table


def test_a_bucket_uses_up_its_block_in_reservations(store: CatalogStore) -> None:
    table = store.create_table(path_of("t"), plain_table(), 1)
    first, second = TableBucket(table, None, 0), TableBucket(table, None, 1)
    numbers = store.row_numbers
    assert [numbers.reserve(first, 4, 10) for _ in range(3)] == [(1, 5), (5, 9), (9, 11)]
    assert numbers.reserve(second, 100, 10) == (11, 21)
    assert numbers.reserve(first, 4, 10) == (21, 25)


def test_numbers_that_were_given_back_are_used_next(
    store: CatalogStore, open_store: Callable[[], CatalogStore]
) -> None:
    table = store.create_table(path_of("t"), plain_table(), 1)
    first, second = TableBucket(table, None, 0), TableBucket(table, None, 1)
    assert store.row_numbers.reserve(first, 4, 10) == (1, 5)
    assert store.row_numbers.reserve(second, 4, 10) == (11, 15)
    store.row_numbers.give_back({first: (2, 5), second: (14, 15)})
    other = open_store().row_numbers
    assert other.reserve(first, 4, 10) == (2, 6)
    assert other.reserve(second, 4, 10) == (14, 18)
    store.row_numbers.give_back({first: (2, 5)})  # too late: more numbers were reserved since
    assert other.reserve(first, 4, 10) == (6, 10)


def test_the_numbers_of_a_dropped_table_or_partition_are_removed(store: CatalogStore) -> None:
    table = store.create_table(path_of("t"), plain_table(partitioned=True), 1)
    old, kept = store.create_partitions(path_of("t"), table, ["old", "kept"])
    for partition in (old, kept):
        store.row_numbers.reserve(TableBucket(table, partition, 0), 4, 10)
    store.drop_partitions(path_of("t"), table, ["old"])
    assert _recorded(store) == 1
    store.row_numbers.give_back({TableBucket(table, old, 0): (2, 5)})
    assert _recorded(store) == 1
    store.drop_table(path_of("t"))
    assert _recorded(store) == 0


def _recorded(store: CatalogStore) -> int:
    (count,) = store.file.connection.execute("SELECT count(*) FROM row_numbers").fetchone()
    return int(count)
