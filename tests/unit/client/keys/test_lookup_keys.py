"""Keys of users to bytes, partitions and buckets: one at a time and column-wise agree."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fluss.client.keys.lookup_keys import KeyReader, Place, prefix_reader, primary_key_reader
from fluss.client.net.metadata import ClientTable
from fluss.client.write.kv_rows import KvRows
from fluss.client.write.routing import Router
from fluss.codec.keys.bucketing import fluss_bucket
from fluss.codec.keys.encoding import KeyEncoding, encode_key
from fluss.config import Config
from fluss.errors import FlussError
from fluss.model import types as t
from fluss.model.descriptor import TableDescriptor
from fluss.model.paths import TablePath
from fluss.model.schema import Column, Schema
from tests.support.runner.lanes import examples

INT, TEXT = t.IntType(nullable=False), t.StringType(nullable=False)


def table(columns: dict[str, t.DataType], key: tuple[str, ...], buckets: int = 5, **options: Any) -> ClientTable:
    schema = Schema(tuple(Column(name, kind) for name, kind in columns.items()), key).numbered()
    return ClientTable(TablePath("db", "t"), 1, 1, TableDescriptor(schema, bucket_count=buckets, **options), 0, 0)


def one_by_one(reader: KeyReader, keys: list[Any]) -> dict[int, tuple[Place, bytes]]:
    found = {}
    for index, key in enumerate(keys):
        place, encoded = reader.one(key)
        if place is not None:
            found[index] = place, encoded
    return found


def at_once(reader: KeyReader, keys: list[Any]) -> dict[int, tuple[Place, bytes]]:
    found = {}
    for place, positions, encoded in reader.groups(reader.batch_of_rows(keys)):
        for index, key in zip(positions.tolist(), encoded.to_pylist(), strict=True):
            found[index] = place, key
    return found


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.tuples(st.integers(-(2**31), 2**31 - 1), st.text(max_size=6)), max_size=70))
@pytest.mark.parametrize("lake", [None, "paimon", "lance"])
def test_both_ways_agree(lake: str | None, keys: list[tuple[int, str]]) -> None:
    properties = {} if lake is None else {"table.datalake.format": lake}
    described = table({"a": INT, "b": TEXT, "v": t.IntType()}, ("a", "b"), properties=properties)
    reader = primary_key_reader(described)
    assert one_by_one(reader, list(keys)) == at_once(reader, list(keys))


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.tuples(st.integers(-9, 9), st.sampled_from(["eu", "us", "a b", "", "x$y"])), max_size=70))
def test_both_ways_agree_about_partitions(keys: list[tuple[int, str]]) -> None:
    reader = primary_key_reader(table({"a": INT, "b": TEXT}, ("a", "b"), partition_keys=("b",)))
    found = at_once(reader, list(keys))
    assert found == one_by_one(reader, list(keys))
    assert {place.partition_name for place, _ in found.values()} <= {"eu", "us", "x$y"}


def test_key_and_bucket_are_those_of_the_format() -> None:
    reader = primary_key_reader(table({"v": t.IntType(), "id": INT}, ("id",)))
    encoded = encode_key([300], [INT], KeyEncoding.COMPACTED)
    assert reader.one({"id": 300}) == (Place(None, fluss_bucket(encoded, 5)), encoded)


def test_the_bucket_key_decides_the_bucket() -> None:
    described = table({"a": INT, "b": INT, "v": TEXT}, ("a", "b"), bucket_keys=("a",))
    prefix = prefix_reader(described, ["a"])
    place, encoded = prefix.one(7)
    whole, whole_key = primary_key_reader(described).one((7, 9))
    assert place == whole
    assert whole_key.startswith(encoded)


def test_times_and_decimals() -> None:
    kinds: dict[str, t.DataType] = {
        "a": t.DateType(nullable=False),
        "b": t.DecimalType(nullable=False, precision=10, scale=2),
        "c": t.TimestampType(nullable=False, precision=6),
        "d": t.TimeType(nullable=False, precision=3),
    }
    reader = primary_key_reader(table(kinds, tuple(kinds)))
    key = (
        datetime.date(1970, 1, 11),
        decimal.Decimal("1.5"),
        datetime.datetime(1970, 1, 1, 0, 0, 1, 5),
        datetime.time(0, 0, 2),
    )
    expected = encode_key([10, 150, (1000, 5000), 2000], list(kinds.values()), KeyEncoding.COMPACTED)
    assert reader.one(key)[1] == expected
    assert at_once(reader, [key] * 60)[59] == reader.one(key)


def test_arrow_keys_may_have_other_types_and_any_order() -> None:
    reader = primary_key_reader(table({"a": INT, "b": TEXT}, ("a", "b")))
    keys = pa.table({"b": pa.array(["x"], pa.large_string()), "a": pa.array([1], pa.int64())})
    assert reader.batch_of_arrow(keys).to_pylist() == [{"a": 1, "b": "x"}]
    assert reader.batch_of_arrow(keys.slice(0, 0)).num_rows == 0
    with pytest.raises(FlussError, match="expects INT"):
        reader.batch_of_arrow(pa.table({"b": ["x"], "a": pa.array([2**40])}))


def test_prefixes_that_do_not_work() -> None:
    described = table({"a": INT, "b": INT, "c": INT}, ("a", "b", "c"), bucket_keys=("a", "b"))
    assert prefix_reader(described, ["a", "b"]).names == ("a", "b")
    for names in (["a"], ["b", "a"], ["a", "b", "c"], ["a", "b", "x"], []):
        with pytest.raises(FlussError, match="looked up by"):
            prefix_reader(described, names)
    with pytest.raises(FlussError, match="cannot be looked up by prefix"):
        prefix_reader(table({"a": INT, "b": INT}, ("a", "b"), bucket_keys=("b",)), ["b"])
    old = {"table.datalake.format": "paimon", "table.kv.format-version": "1"}
    with pytest.raises(FlussError, match="cannot be looked up by prefix"):
        prefix_reader(table({"a": INT, "b": INT}, ("a", "b"), bucket_keys=("a",), properties=old), ["a"])


# Key type, key, and its bucket of 3 and of 16, for Java and for pyfluss.
HASHED_KEYS = [
    (INT, 127, (1, 10), (1, 10)),
    (INT, 128, (1, 2), (0, 7)),
    (INT, 1000, (2, 3), (0, 9)),
    (INT, -1, (0, 10), (0, 10)),
    (t.BigIntType(nullable=False), -1, (2, 7), (1, 4)),
    (t.BigIntType(nullable=False), 1234567890123, (0, 0), (2, 8)),
    (TEXT, "é", (2, 6), (0, 10)),
    (TEXT, "日本語", (0, 12), (0, 3)),
]


@pytest.mark.parametrize(("kind", "key", "java", "pyfluss"), HASHED_KEYS)
def test_keys_are_hashed_as_their_writer_does(
    kind: t.DataType, key: Any, java: tuple[int, int], pyfluss: tuple[int, int]
) -> None:
    """Writers and lookups agree, for one key and for many, under both settings of `bucket.hash`."""
    for tail, expected in (("java", java), ("pyfluss", pyfluss)):
        config = Config({"bucket.hash": tail})
        for bucket_count, bucket in zip((3, 16), expected, strict=True):
            described = table({"k": kind}, ("k",), buckets=bucket_count)
            reader = primary_key_reader(described, config.bucket_hash)
            assert reader.one(key)[0] == Place(None, bucket)
            assert {group.place.bucket_id for group in reader.groups(reader.batch_of_rows([key] * 20))} == {bucket}
            for count in (1, 20):
                rows = KvRows(described, config, (0,))
                (batch,) = rows.upserts(reader.batch_of_rows([key] * count), "upsert")
                assert {routed.bucket_id for routed in rows.route(batch)} == {bucket}
            log = table({"k": kind}, (), buckets=bucket_count, bucket_keys=("k",))
            for count in (1, 20):
                router = Router(log, "sticky", 1, lambda name: (), config.bucket_hash)
                assert {routed.bucket_id for routed in router.route(reader.batch_of_rows([key] * count))} == {bucket}
