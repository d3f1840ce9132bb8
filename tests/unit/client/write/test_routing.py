"""Buckets and partitions of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from fluss.client.fitting import places
from fluss.client.net.metadata import ClientTable
from fluss.client.write.routing import (
    USUAL_PARTITIONS_AT_ONCE,
    RoundRobinAssigner,
    Router,
    StickyAssigner,
    place_rules,
    required_columns,
)
from fluss.client.write.row_function import RowRules, append_source
from fluss.codec.keys.bucketing import fluss_bucket, paimon_bucket
from fluss.codec.keys.encoding import KeyEncoding, encode_key
from fluss.errors import ErrorCode, FlussError
from fluss.model.descriptor import TableDescriptor
from fluss.model.paths import TablePath
from fluss.model.schema import Column, Schema
from fluss.model.types import BigIntType, DateType, IntType, StringType

SCHEMA = Schema((Column("id", IntType()), Column("name", StringType()), Column("day", DateType())))
BATCH = pa.record_batch(
    [
        pa.array([1, 128, 1000, -1, 7, 2**31 - 1, 0], pa.int32()),
        pa.array(["a", "b", "é", "a", "b", "c", "a"]),
        pa.array([0, 1, 0, 1, 0, 1, 0], pa.int32()).cast(pa.date32()),
    ],
    ["id", "name", "day"],
)


def table(buckets: int = 4, **options: Any) -> ClientTable:
    descriptor = TableDescriptor(SCHEMA, bucket_count=buckets, **options)
    return ClientTable(TablePath("db", "t"), 1, 1, descriptor, 0, 0)


def router(client_table: ClientTable, assigner: str = "sticky", batch_bytes: int = 1000) -> Router:
    return Router(client_table, assigner, batch_bytes, lambda name: range(client_table.bucket_count))


@pytest.mark.parametrize(
    ("lake", "encoding", "bucket_of"),
    [(None, KeyEncoding.COMPACTED, fluss_bucket), ("paimon", KeyEncoding.PAIMON, paimon_bucket)],
)
def test_bucket_keys_are_hashed_as_in_java(lake: str | None, encoding: KeyEncoding, bucket_of: Any) -> None:
    properties = {} if lake is None else {"table.datalake.format": lake}
    for batch in (BATCH, pa.concat_batches([BATCH] * 9)):  # one by one, and all at once
        rows = 0
        for partition, bucket, part in router(table(bucket_keys=("id", "name"), properties=properties)).route(batch):
            assert partition is None
            for row in part.to_pylist():
                key = encode_key([row["id"], row["name"]], [IntType(), StringType()], encoding)
                assert bucket_of(key, 4, "java") == bucket
                rows += 1
        assert rows == batch.num_rows


def test_the_order_of_a_bucket_is_kept() -> None:
    count = 5000
    batch = pa.record_batch(
        [pa.array(np.arange(count) % 50, pa.int32()), pa.array(map(str, range(count))), pa.nulls(count, pa.date32())],
        ["id", "name", "day"],
    )
    routed = router(table(7, bucket_keys=("id",))).route(batch)
    assert sorted(int(name) for _, _, part in routed for name in part["name"].to_pylist()) == list(range(count))
    for _, _, part in routed:
        numbers = [int(name) for name in part["name"].to_pylist()]
        assert numbers == sorted(numbers)


def test_sticky_moves_on_when_enough_went_to_a_bucket() -> None:
    assigner = StickyAssigner(batch_bytes=100)
    first = assigner.assign(1, 60, lambda: range(3))
    assert assigner.assign(1, 60, lambda: range(3)) == first
    second = assigner.assign(1, 10, lambda: range(3))
    assert second != first
    assert assigner.assign(1, 500, lambda: range(3)) == second
    assert assigner.assign(1, 1, lambda: [second]) == second  # the only one there is
    assert {StickyAssigner(1).assign(1, 1, lambda: range(3)) for _ in range(200)} == {0, 1, 2}


def test_round_robin_goes_round() -> None:
    assigner = RoundRobinAssigner()
    numbers = np.concatenate([assigner.assign(rows, range(4)) for rows in (3, 1, 7, 9)])
    assert ((numbers - numbers[0]) % 4).tolist() == [index % 4 for index in range(20)]
    assert set(assigner.assign(10, [2, 3]).tolist()) == {2, 3}
    routed = router(table(4), "round_robin").route(BATCH)
    assert sorted(part.num_rows for _, _, part in routed) == [1, 2, 2, 2]


def test_partitions_have_names_and_assigners_of_their_own() -> None:
    routed = router(table(3, partition_keys=("name", "day"))).route(
        BATCH.filter(pa.array([True, True, False] + [True] * 4))
    )
    names = [name for name, _, _ in routed]
    assert sorted(map(str, names)) == ["a$1970-01-01", "a$1970-01-02", "b$1970-01-01", "b$1970-01-02", "c$1970-01-02"]
    assert sum(part.num_rows for _, _, part in routed) == 6
    for name, _, part in routed:
        assert {f"{row['name']}${row['day']}" for row in part.to_pylist()} == {name}


def test_a_name_that_no_partition_can_have_is_refused() -> None:
    with pytest.raises(FlussError, match="partition 'é'") as caught:
        router(table(partition_keys=("name",))).route(BATCH)
    assert caught.value.error_code == ErrorCode.PARTITION_SPEC_INVALID_EXCEPTION


def test_nulls_have_no_bucket() -> None:
    nulls = pa.record_batch(
        [pa.array([None], pa.int32()), pa.array(["a"]), pa.array([None], pa.date32())], BATCH.schema
    )
    for rows in (nulls, pa.concat_batches([nulls] * 50)):
        with pytest.raises(FlussError, match="null"):
            router(table(bucket_keys=("id",))).route(rows)
    assert required_columns(table(bucket_keys=("id",), partition_keys=("day",))) == ("day", "id")
    paimon = {"table.datalake.format": "paimon"}
    assert required_columns(table(bucket_keys=("id",), properties=paimon)) == ()


@pytest.mark.parametrize(
    ("options", "columns"),
    [
        ({}, set()),
        ({"bucket_keys": ("id", "name")}, set()),
        ({"bucket_keys": ("id", "name"), "properties": {"table.datalake.format": "paimon"}}, set()),
        ({"bucket_keys": ("id",), "properties": {"table.datalake.format": "iceberg"}}, set()),
        ({"bucket_keys": ("name",), "properties": {"table.datalake.format": "iceberg"}}, {"name"}),
        ({"bucket_keys": ("name",), "buckets": 1, "properties": {"table.datalake.format": "iceberg"}}, set()),
        ({"bucket_keys": ("name",), "properties": {"table.datalake.format": "hudi"}}, set()),
        ({"bucket_keys": ("id", "name"), "properties": {"table.datalake.format": "hudi"}}, {"name"}),
        ({"partition_keys": ("id",)}, set()),
        ({"partition_keys": ("name", "day")}, {"name", "day"}),
    ],
)
def test_only_columns_with_values_that_have_no_place_are_checked(options: dict[str, Any], columns: set[str]) -> None:
    """The generated function of all other tables has no condition for it."""
    rules = place_rules(table(**{"buckets": 4, **options}))
    assert set(rules) == columns
    plain = append_source(RowRules("db.t", SCHEMA))
    of_rows = {name for name in columns if name != "day"}  # all of Python's days have a name
    assert (append_source(RowRules("db.t", SCHEMA, places=rules)) == plain) == (not of_rows)


def test_names_of_partitions_are_remembered_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "known_partition_values", known := set[str]())
    monkeypatch.setattr(places, "MAX_KNOWN_PARTITION_VALUES", 2)
    assert [places.is_partition_value(text) for text in ("a", "b c", "", "b", "c")] == [True, False, False, True, True]
    assert known == {"a", "b"}


def test_no_rows_and_one_bucket() -> None:
    assert router(table()).route(BATCH.slice(0, 0)) == []
    assert [(name, bucket) for name, bucket, _ in router(table(1)).route(BATCH)] == [(None, 0)]
    assert BigIntType().nullable


def test_spread_is_the_number_of_buckets_that_rows_are_divided_among() -> None:
    assert router(table()).spread == 1  # sticky: all rows to one bucket
    assert router(table(), "round_robin").spread == 4
    assert router(table(bucket_keys=("id",))).spread == 4
    assert router(table(bucket_keys=("id",), partition_keys=("name",))).spread == 4 * USUAL_PARTITIONS_AT_ONCE
