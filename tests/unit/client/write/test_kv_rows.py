"""Rows of primary-key tables: as values, as bytes, by bucket; and which columns a writer may write."""

from __future__ import annotations

import datetime
import random
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest

from fluss.client.keys.lookup_keys import primary_key_reader
from fluss.client.net.metadata import ClientTable
from fluss.client.write.kv_encoding import KvEncoder, kv_row_format
from fluss.client.write.kv_rows import KvRows, check_targets, default_targets, named_targets, target_positions
from fluss.codec.batches.kv_batch import check_kv_crc, decode_kv_batch, read_kv_header
from fluss.codec.keys.bucketing import BUCKET_OF_LAKE_FORMAT
from fluss.codec.keys.encoding import KeyEncoding, encode_key
from fluss.codec.rows.compacted import encode_compacted_row
from fluss.codec.rows.indexed import encode_indexed_row
from fluss.config import Config
from fluss.errors import ErrorCode, FlussError
from fluss.model.descriptor import TableDescriptor
from fluss.model.paths import TablePath
from fluss.model.schema import Column, Schema
from fluss.model.types import (
    BigIntType,
    DataType,
    DoubleType,
    IntType,
    StringType,
    TimestampLtzType,
    TimestampType,
    TimeType,
)

COLUMNS: tuple[tuple[str, DataType], ...] = (
    ("value", DoubleType()),
    ("b", StringType(nullable=False)),
    ("a", IntType(nullable=False)),
    ("note", StringType()),
)
TYPES = [data_type for _, data_type in COLUMNS]
CONFIG = Config({})


def make_table(*, key: tuple[str, ...] = ("a", "b"), schema: Schema | None = None, **options: Any) -> ClientTable:
    schema = schema or Schema(tuple(Column(*column) for column in COLUMNS), primary_key=key)
    options.setdefault("bucket_count", 4)
    return ClientTable(TablePath("db", "t"), 1, 7, TableDescriptor(schema, **options), 0, 0)


def rows_of(table: ClientTable, columns: list[str] | None = None) -> KvRows:
    return KvRows(table, CONFIG, default_targets(table) if columns is None else named_targets(table, columns))


class Sink:
    """A buffer that is never emptied."""

    def __init__(self) -> None:
        self.flat: list[Any] = []
        self.limit = 10**9
        self.handle: Any = object()
        self.idle = False

    def make_room(self) -> None: ...
    def settled(self) -> Any: ...
    def raced(self, handle: Any) -> Any: ...
    def kick(self) -> None: ...
    def add_large(self, size_bytes: int) -> None: ...


def random_writes(
    rows: KvRows, count: int, deletes: float, texts: Sequence[str] = ("x", "é", "longer than that")
) -> tuple[Any, list[tuple[tuple[Any, ...], bool]]]:
    """A record batch of random writes, and what was written: full rows and whether they are deletes."""
    choose, sink = random.Random(count), Sink()
    upsert, delete = rows.make_append(sink), rows.make_delete(sink)
    written: list[tuple[tuple[Any, ...], bool]] = []
    for _ in range(count):
        key = (choose.choice(texts), choose.randrange(-5, 100))
        if choose.random() < deletes:
            delete({"a": key[1], "b": key[0]})
            written.append(((None, *key, None), True))
        else:
            row = (choose.choice([0.5, None]), *key, choose.choice(["n", None]))
            upsert(row)
            written.append((row, False))
    return rows.record_batch(sink.flat), written


@pytest.mark.parametrize("count", [1, 12, 13, 47, 48, 500])
@pytest.mark.parametrize("deletes", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("kv_format", ["COMPACTED", "INDEXED"])
@pytest.mark.parametrize(
    ("properties", "bucket_keys", "primary", "bucket"),
    [
        ({}, (), KeyEncoding.COMPACTED, KeyEncoding.COMPACTED),
        ({}, ("a",), KeyEncoding.COMPACTED, KeyEncoding.COMPACTED),
        ({"table.datalake.format": "paimon"}, (), KeyEncoding.PAIMON, KeyEncoding.PAIMON),
        (
            {"table.datalake.format": "iceberg", "table.kv.format-version": "2"},
            ("a",),
            KeyEncoding.COMPACTED,
            KeyEncoding.ICEBERG,
        ),
    ],
    ids=["plain", "bucket key", "paimon", "iceberg 2"],
)
def test_rows_are_encoded_as_one_by_one(
    count: int,
    deletes: float,
    kv_format: str,
    properties: dict[str, str],
    bucket_keys: tuple[str, ...],
    primary: KeyEncoding,
    bucket: KeyEncoding,
) -> None:
    table = make_table(bucket_keys=bucket_keys, properties={**properties, "table.kv.format": kv_format.lower()})
    batch, written = random_writes(rows_of(table), count, deletes)
    encode_row = encode_compacted_row if kv_format == "COMPACTED" else encode_indexed_row
    bucket_of = BUCKET_OF_LAKE_FORMAT[properties.get("table.datalake.format")]
    key_types = [TYPES[2], TYPES[1]]
    expected: dict[int, list[tuple[bytes, bytes | None]]] = {}
    for row, is_delete in written:
        key = encode_key([row[2], row[1]], key_types, primary)
        width = len(bucket_keys) or 2
        bucket_key = encode_key([row[2], row[1]][:width], key_types[:width], bucket)
        entry = (key, None if is_delete else encode_row(row, TYPES))
        expected.setdefault(bucket_of(bucket_key, 4, "java"), []).append(entry)
    routed = rows_of(table).route(batch)
    assert {part.bucket_id for part in routed} == set(expected)
    for part in routed:
        assert part.partition_name is None
        assert list(zip(*(column.to_pylist() for column in part.rows.columns), strict=True)) == expected[part.bucket_id]


def test_partitions_are_not_part_of_keys() -> None:
    table = make_table(partition_keys=("b",), bucket_count=2)
    rows = rows_of(table)
    names = ("x", "US", "longer-than-that")
    batch, written = random_writes(rows, 300, 0.3, names)
    seen = 0
    for name, bucket_id, part in rows.route(batch):
        assert name in names
        mine = [(row, deleted) for row, deleted in written if row[1] == name]
        keys = [encode_key([row[2]], [TYPES[2]], KeyEncoding.COMPACTED) for row, _ in mine]
        bucket_of = BUCKET_OF_LAKE_FORMAT[None]
        assert part.column(0).to_pylist() == [key for key in keys if bucket_of(key, 2, "java") == bucket_id]
        seen += part.num_rows
    assert seen == 300
    assert rows.route(batch.slice(0, 0)) == []


def test_floats_keep_nulls_and_nans_apart() -> None:
    table = make_table()
    rows, sink = rows_of(table), Sink()
    upsert, delete = rows.make_append(sink), rows.make_delete(sink)
    upsert((float("nan"), "x", 1, None))
    assert rows.record_batch(sink.flat).column(0).null_count == 0
    delete((1, "x"))
    batch = rows.record_batch(sink.flat)
    assert batch.column(0).null_count == 1
    assert batch.column(4).to_pylist() == [False, True]


def test_partial_rows_are_full_width() -> None:
    table = make_table()
    rows, sink = rows_of(table, ["note", "b", "a"]), Sink()
    upsert = rows.make_append(sink)
    upsert(("n", "x", 1))
    upsert({"a": 2, "b": "y"})
    batch = rows.record_batch(sink.flat)
    assert [list(row.values()) for row in batch.to_pylist()] == [
        [None, "x", 1, "n", False],
        [None, "y", 2, None, False],
    ]
    assert rows.encoder.target_columns == (1, 2, 3)
    arrow = rows.upserts(pa.table({"a": [1], "b": ["x"], "note": ["n"]}), "upsert_arrow")
    assert list(arrow) == [batch.slice(0, 1)]
    assert rows_of(table, ["note", "b", "a", "value"]).encoder.target_columns == ()


def test_batches_are_numbered_without_copying_records() -> None:
    table = make_table(bucket_count=1)
    for count in (5, 200):
        batch, written = random_writes(rows_of(table), count, 0.5)
        encoder = KvEncoder(table, 10**6, ())
        (part,) = rows_of(table).route(batch)
        (data,) = encoder.encode_parts(part.rows)
        front, records = encoder.numbered(data, 42, 17)
        assert isinstance(records, memoryview)
        whole = b"".join((front, records))
        header = read_kv_header(whole)
        assert (header.schema_id, header.writer_id, header.batch_sequence, header.record_count) == (7, 42, 17, count)
        assert check_kv_crc(whole, header)
        assert check_kv_crc(data, read_kv_header(data))
        assert [value is None for value in decode_kv_batch(whole).value_list] == [deleted for _, deleted in written]


def test_large_batches_are_halved_and_a_large_row_is_refused() -> None:
    table = make_table(bucket_count=1)
    batch, _ = random_writes(rows_of(table), 200, 0.2)
    (part,) = rows_of(table).route(batch)
    whole = decode_kv_batch(KvEncoder(table, 10**6, ()).encode(part.rows))
    parts = list(KvEncoder(table, 1_000, ()).encode_parts(part.rows))
    assert len(parts) > 2
    assert [key for data in parts for key in decode_kv_batch(data).key_list] == whole.key_list
    with pytest.raises(FlussError) as caught:
        list(KvEncoder(table, 20, ()).encode_parts(part.rows))
    assert caught.value.error_code == ErrorCode.RECORD_TOO_LARGE_EXCEPTION


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        (["a", "note"], "missing: b"),
        (["a", "b", "zz"], "unknown column 'zz'"),
        (["a", "b", "b"], "must not be duplicated"),
    ],
)
def test_targets_that_cannot_be(columns: list[str], text: str) -> None:
    table = make_table()
    with pytest.raises(FlussError, match=text) as caught:
        check_targets(table, named_targets(table, columns))
    assert caught.value.error_code == ErrorCode.CLIENT_ERROR


def test_targets_are_lists() -> None:
    table = make_table()
    assert target_positions(table, [3, 1, 2]) == named_targets(table, ["note", "b", "a"]) == (3, 1, 2)
    for wrong in ("ab", 5):
        with pytest.raises(FlussError, match="list of names"):
            named_targets(table, wrong)  # type: ignore[arg-type]
        with pytest.raises(FlussError, match="list of positions"):
            target_positions(table, wrong)  # type: ignore[arg-type]
    for position in (4, -1, True, "a"):
        with pytest.raises(FlussError, match="are 0 to 3"):
            target_positions(table, [1, 2, position])  # type: ignore[list-item]


def test_columns_outside_a_partial_update_must_allow_null() -> None:
    columns = (Column("id", IntType(nullable=False)), Column("x", IntType(nullable=False)), Column("y", IntType()))
    table = make_table(schema=Schema(columns, primary_key=("id",)))
    with pytest.raises(FlussError, match="'x' is INT NOT NULL"):
        check_targets(table, (0, 2))
    check_targets(table, (2, 1, 0))  # everything: an ordinary upsert


def test_the_server_gives_auto_increment_values() -> None:
    columns = (Column("id", IntType(nullable=False)), Column("number", BigIntType()), Column("y", IntType()))
    table = make_table(schema=Schema(columns, primary_key=("id",), auto_increment_column="number"))
    assert default_targets(table) == (0, 2)
    assert rows_of(table).encoder.target_columns == (0, 2)
    with pytest.raises(FlussError, match="auto-increment column 'number'"):
        check_targets(table, (0, 1))


def test_an_unknown_row_format_is_refused() -> None:
    with pytest.raises(FlussError, match="'PARQUET'"):
        kv_row_format(make_table(properties={"table.kv.format": "parquet"}))


def test_changes_keep_their_order_and_deletes_need_only_keys() -> None:
    columns = (Column("a", IntType(nullable=False)), Column("note", StringType(nullable=False)))
    rows = rows_of(make_table(schema=Schema(columns, primary_key=("a",)), bucket_count=1))
    batch = pa.RecordBatch.from_pydict({"note": ["x", None, "y"], "a": [1, 1, 2]})
    deletes = pa.array([False, True, False])
    (change,) = rows.changes(batch, deletes, "change_arrow")
    assert change.column(2).to_pylist() == [False, True, False]
    (part,) = rows.route(change)
    assert [row is None for row in part.rows.column(1).to_pylist()] == [False, True, False]
    with pytest.raises(FlussError, match=r"'note'.*must not be null, but is null in row 1, .* not a delete: write a"):
        rows.changes(batch, pa.array([False, False, True]), "change_arrow")
    with pytest.raises(FlussError, match=r"'a'.*must not be null"):
        rows.changes(pa.RecordBatch.from_pydict({"a": [None]}), pa.array([True]), "change_arrow")
    for flags in (pa.array([True]), pa.array([True, None, False]), [True, False, True]):
        with pytest.raises(FlussError, match="true or false for each of 3 rows"):
            rows.changes(batch, cast(Any, flags), "change_arrow")
    with pytest.raises(FlussError, match=r"takes a pyarrow.RecordBatch, got Table"):
        rows.changes(cast(Any, pa.table(batch.to_pydict())), deletes, "change_arrow")


TIME, MOMENT = datetime.time(1, 2, 3), datetime.datetime(2026, 1, 2, 3, 4, 5)


@pytest.mark.parametrize(
    ("data_type", "fits", "finer"),
    [
        (TimeType(0), TIME, TIME.replace(microsecond=100_000)),
        (TimeType(3), TIME.replace(microsecond=1_000), TIME.replace(microsecond=1_001)),
        (TimestampType(0), MOMENT, MOMENT.replace(microsecond=1)),
        (TimestampType(3), MOMENT.replace(microsecond=999_000), MOMENT.replace(microsecond=999_999)),
        (TimestampLtzType(3), MOMENT.replace(microsecond=999_000), np.datetime64("2026-01-02T03:04:05.000000001")),
        (TimestampType(6), MOMENT.replace(microsecond=999_999), np.datetime64("2026-01-02T03:04:05.000000001")),
    ],
    ids=str,
)
def test_times_in_keys_are_not_cut_off(data_type: DataType, fits: Any, finer: Any) -> None:
    schema = Schema((Column("k", data_type.not_null()), Column("v", data_type)), primary_key=("k",))
    table = make_table(schema=schema)
    rows, sink = rows_of(table), Sink()
    upsert, delete = rows.make_append(sink), rows.make_delete(sink)
    lookups = primary_key_reader(table)
    upsert([fits, fits])
    delete([fits])
    place, key = lookups.one(fits)
    (routed, *_) = rows.route(rows.record_batch(sink.flat))
    assert place is not None
    assert (routed.bucket_id, routed.rows.column(0).to_pylist()) == (place.bucket_id, [key, key])
    for write, row in ((upsert, [finer, None]), (upsert, {"k": finer}), (delete, [finer])):
        with pytest.raises(FlussError, match=r"'k' expects TIME.* digits finer.* keys are never cut off"):
            write(row)
    with pytest.raises(FlussError, match=r"digits finer.* keys are never cut off"):
        lookups.one(finer)
    with pytest.raises(FlussError, match=r"digits finer.* keys are never cut off"):
        lookups.batch_of_rows([fits, finer])
