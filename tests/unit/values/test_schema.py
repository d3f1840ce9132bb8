"""Schemas, data types and descriptors as users make them."""

from __future__ import annotations

import pickle
from typing import Any, cast

import pyarrow as pa
import pytest

import fluss
from fluss import DataTypes, FlussError, Schema, TableDescriptor
from fluss.codec.arrow.types import to_arrow_type
from fluss.values.data_types import type_text

ARROW = pa.schema(
    [
        pa.field("a", pa.int32()),
        pa.field("b", pa.string(), nullable=False),
        pa.field("c", pa.decimal128(10, 2)),
        pa.field("d", pa.timestamp("us")),
        pa.field("e", pa.timestamp("us", tz="UTC")),
        pa.field("f", pa.list_(pa.int32())),
        pa.field("g", pa.map_(pa.string(), pa.int64())),
        pa.field("h", pa.struct([("x", pa.int8())])),
        pa.field("i", pa.time32("ms")),
        pa.field("j", pa.binary()),
        pa.field("k", pa.binary(4)),
        pa.field("l", pa.bool_()),
        pa.field("m", pa.float32()),
        pa.field("n", pa.date32()),
        pa.field("o", pa.float64()),
        pa.field("p", pa.int16()),
        pa.field("q", pa.int64()),
        pa.field("r", pa.timestamp("ns")),
    ]
)
# What the published client answers for this schema.
TYPES = [
    "int NOT NULL", "string NOT NULL", "decimal(10,2)", "timestamp", "timestamp_ltz", "array<int>",
    "map<string NOT NULL,bigint>", "row<x: tinyint>", "time(3)", "bytes", "binary(4)", "boolean", "float", "date",
    "double", "smallint", "bigint", "timestamp(9)",
]  # fmt: skip


def test_a_schema_from_arrow() -> None:
    schema = Schema(ARROW, primary_keys=["a"])
    assert schema.get_column_types() == TYPES
    assert schema.get_columns()[:2] == [("a", "int NOT NULL"), ("b", "string NOT NULL")]
    assert schema.get_column_names() == schema.column_names == ARROW.names
    assert (schema.get_primary_keys(), schema.primary_key_indexes) == (["a"], [0])
    assert schema.get_auto_increment_columns() == []
    assert schema.to_arrow().field("e").type == pa.timestamp("us", tz="UTC")
    assert pickle.loads(pickle.dumps(schema)) == schema
    assert Schema(ARROW, primary_keys=None).get_primary_keys() == []
    assert Schema(ARROW).primary_key is None
    short = Schema(ARROW.empty_table().select(["a", "b"]).schema, primary_keys=["a"])
    assert repr(short) == "Schema(a int NOT NULL, b string NOT NULL, PRIMARY KEY (a))"


def test_the_builder_makes_the_same() -> None:
    arrow = Schema(pa.schema([pa.field("id", pa.int32(), nullable=False), ("name", pa.string())]), ["id"])
    built = Schema.builder().column("id", DataTypes.int()).column("name", pa.string()).primary_key(["id"]).build()
    assert built == arrow
    assert hash(built) == hash(arrow)
    commented = Schema.builder().column("id", DataTypes.int()).with_comment("key").build()
    assert commented.columns[0].comment == "key"
    numbered = (
        Schema.builder()
        .column("id", DataTypes.int())
        .column("nr", DataTypes.bigint())
        .primary_key("id")
        .enable_auto_increment("nr")
        .build()
    )
    assert numbered.get_auto_increment_columns() == ["nr"]


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Schema(pa.schema([("a", pa.uint32())])), "column 'a': Arrow type uint32 has no Fluss type"),
        (lambda: Schema(pa.schema([("a", pa.int8())]), ["z"]), "primary-key column 'z' is not a column"),
        (lambda: Schema(pa.schema([("a", pa.int8()), ("a", pa.int8())])), "duplicate column name 'a'"),
        (lambda: Schema(pa.schema([("a", pa.int8())]), "a"), "primary_keys must be a list of column names"),
        (lambda: Schema(pa.schema([])), "at least one column"),
        (lambda: Schema(cast(Any, {"a": 1})), "schema must be a pyarrow.Schema"),
        (lambda: Schema.builder().build(), "at least one column"),
        (
            lambda: Schema.builder().column("a", cast(Any, "int")),
            "a data type must be one of DataTypes or a pyarrow type",
        ),
        (lambda: Schema.builder().with_aggregation("sum"), "add a column first"),
        (lambda: Schema(pa.schema([("a", pa.int8())]), auto_increment_column="a"), "auto-increment column 'a' must be"),
        (lambda: DataTypes.decimal(50, 2), "DECIMAL precision must be an integer from 1 to 38"),
        (lambda: DataTypes.char(0), "CHAR length must be"),
    ],
)
def test_impossible_schemas_are_refused_with_the_reason(make: object, text: str) -> None:
    with pytest.raises(FlussError) as caught:
        make()  # type: ignore[operator]
    assert text in caught.value.message
    assert caught.value.error_code == fluss.ErrorCode.CLIENT_ERROR


@pytest.mark.parametrize(
    ("data_type", "text", "arrow"),
    [
        (DataTypes.boolean(), "boolean", pa.bool_()),
        (DataTypes.tinyint(), "tinyint", pa.int8()),
        (DataTypes.smallint(), "smallint", pa.int16()),
        (DataTypes.int(), "int", pa.int32()),
        (DataTypes.bigint(), "bigint", pa.int64()),
        (DataTypes.float(), "float", pa.float32()),
        (DataTypes.double(), "double", pa.float64()),
        (DataTypes.string(), "string", pa.string()),
        (DataTypes.bytes(), "bytes", pa.binary()),
        (DataTypes.date(), "date", pa.date32()),
        (DataTypes.time(), "time", pa.time32("s")),
        (DataTypes.time(3), "time(3)", pa.time32("ms")),
        (DataTypes.timestamp(), "timestamp", pa.timestamp("us")),
        (DataTypes.timestamp(3), "timestamp(3)", pa.timestamp("ms")),
        (DataTypes.timestamp_ltz(), "timestamp_ltz", pa.timestamp("us", "UTC")),
        (DataTypes.decimal(12, 3), "decimal(12,3)", pa.decimal128(12, 3)),
        (DataTypes.char(3), "char(3)", pa.string()),
        (DataTypes.binary(3), "binary(3)", pa.binary(3)),
        (DataTypes.array(DataTypes.int()), "array<int>", pa.list_(pa.field("element", pa.int32()))),
        (
            DataTypes.map(DataTypes.string(), DataTypes.int().not_null()),
            "map<string NOT NULL,int NOT NULL>",
            pa.map_(pa.string(), pa.field("value", pa.int32(), nullable=False)),
        ),
        (
            DataTypes.row([DataTypes.field("x", DataTypes.int()), fluss.DataField("y", DataTypes.string(), "why")]),
            "row<x: int, y: string>",
            pa.struct([("x", pa.int32()), ("y", pa.string())]),
        ),
    ],
)
def test_data_types(data_type: fluss.DataField, text: str, arrow: pa.DataType) -> None:
    assert type_text(data_type) == text  # type: ignore[arg-type]
    assert to_arrow_type(data_type) == arrow  # type: ignore[arg-type]


COLUMNS = Schema(pa.schema([("id", pa.int32()), ("region", pa.string()), ("value", pa.int64())]))


def test_a_descriptor_keeps_what_it_is_given() -> None:
    made = TableDescriptor(
        COLUMNS,
        partition_keys=["region"],
        bucket_count=3,
        bucket_keys=["id"],
        comment="words",
        log_format="arrow",
        kv_format=fluss.KvFormat.COMPACTED,
        properties={"table.replication.factor": 1, "table.datalake.enabled": True},  # type: ignore[dict-item]
        custom_properties={"owner": "me"},
    )
    assert made.get_schema() is COLUMNS
    assert (made.partition_keys, made.bucket_keys, made.bucket_count) == (["region"], ["id"], 3)
    assert made.properties == {
        "table.replication.factor": "1",
        "table.datalake.enabled": "true",
        "table.log.format": "ARROW",
        "table.kv.format": "COMPACTED",
    }
    assert (made.comment, made.custom_properties) == ("words", {"owner": "me"})
    assert made.is_partitioned()
    assert not made.has_primary_key()
    built = (
        TableDescriptor.builder()
        .schema(COLUMNS)
        .partitioned_by(["region"])
        .distributed_by(3, ["id"])
        .comment("words")
        .log_format(fluss.LogFormat.ARROW)
        .kv_format("COMPACTED")
        .property("table.replication.factor", "1")
        .properties({"table.datalake.enabled": "true"})
        .custom_property("owner", "me")
        .build()
    )
    assert built == made
    assert hash(built) == hash(made)
    nothing = TableDescriptor(COLUMNS, partition_keys=None, bucket_count=None, properties=None, comment=None)
    assert nothing == TableDescriptor(COLUMNS)
    assert repr(nothing) == "TableDescriptor(Schema(id int, region string, value bigint))"
    begun = TableDescriptor.builder().schema(COLUMNS).distributed_by(3)
    assert repr(begun) == "TableDescriptorBuilder(schema=Schema(id int, region string, value bigint), bucket_count=3)"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"partition_keys": "region"}, "partition_keys must be a list of column names"),
        ({"log_format": "json"}, "log_format must be one of ARROW, INDEXED, COMPACTED, got 'json'"),
        ({"bucket_count": "3"}, "bucket_count must be an int, got '3'"),
        ({"properties": {"a": None}}, "properties must be a dict of str to str"),
    ],
)
def test_impossible_descriptors_are_refused_with_the_reason(options: dict[str, object], text: str) -> None:
    with pytest.raises(FlussError) as caught:
        TableDescriptor(COLUMNS, **options)  # type: ignore[arg-type]
    assert text in caught.value.message


def test_keys_of_a_primary_key_table_are_checked_and_completed() -> None:
    schema = Schema(COLUMNS.to_arrow(), primary_keys=["id", "region"])
    assert TableDescriptor(schema, partition_keys=["region"]).bucket_keys == ["id"]
    with pytest.raises(FlussError, match="bucket key 'value' must be part of the primary key"):
        TableDescriptor(schema, bucket_keys=["value"])


def test_databases() -> None:
    made = fluss.DatabaseDescriptor("words", {"a": "b"})
    built = fluss.DatabaseDescriptor.builder().comment("words").custom_property("a", "b").build()
    assert made == built
    assert made.custom_properties == made.get_custom_properties() == {"a": "b"}
    assert repr(made) == "DatabaseDescriptor(comment='words', custom_properties={'a': 'b'})"
    assert fluss.DatabaseDescriptor(None, None).comment is None
