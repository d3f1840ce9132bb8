"""The layout of a lake table: types, columns, partitions, properties."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from pyiceberg.transforms import BucketTransform
from pyiceberg.utils.datetime import date_to_days, datetime_to_micros, time_to_micros

from fluss.codec.keys.bucketing import iceberg_bucket
from fluss.codec.keys.encoding import KeyEncoding, encode_key
from fluss.errors import ErrorCode, FlussError
from fluss.lake.tables.iceberg.schema import lake_properties, lake_schema, partition_spec, sort_order
from fluss.lake.tables.iceberg.settings import catalog_properties
from fluss.lake.tables.iceberg.types import from_iceberg_type, same_type, to_iceberg_type
from fluss.lake.tables.open_lake import open_lake
from fluss.model import types as t
from fluss.model.types import DataType
from tests.support.lake.tables import PEOPLE, spec_of
from tests.support.spark.all_types import CASES


def iceberg_type(data_type: DataType) -> Any:
    return to_iceberg_type(data_type, lambda: 1)


def test_every_type_has_the_iceberg_type_of_the_reference() -> None:
    shown = {case.name: str(iceberg_type(case.data_type)) for case in CASES}
    assert shown == {
        "c_boolean": "boolean",
        "c_tinyint": "int",
        "c_smallint": "int",
        "c_int": "int",
        "c_bigint": "long",
        "c_float": "float",
        "c_double": "double",
        "c_char": "string",
        "c_string": "string",
        "c_binary": "binary",
        "c_bytes": "binary",
        "c_decimal": "decimal(10, 2)",
        "c_decimal_wide": "decimal(38, 18)",
        "c_date": "date",
        "c_time0": "time",
        "c_time3": "time",
        **{f"c_ts{digits}": "timestamp" for digits in (0, 3, 6, 9)},
        **{f"c_ltz{digits}": "timestamptz" for digits in (0, 3, 6, 9)},
        "c_array": "list<int>",
        "c_array_not_null": "list<string>",
        "c_map": "map<string, double>",
        "c_row": "struct<1: a: required int, 1: b: optional string>",
        "c_nested": "list<struct<1: when: optional timestamptz, 1: tags: optional map<string, list<binary>>>>",
    }


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_types_are_converted_back_to_types_with_the_same_values(case: Any) -> None:
    back = from_iceberg_type(iceberg_type(case.data_type), case.data_type.nullable)
    assert same_type(iceberg_type(back), iceberg_type(case.data_type))
    assert back.nullable == case.data_type.nullable


def test_user_columns_come_first_and_the_key_identifies() -> None:
    schema = lake_schema(spec_of(PEOPLE, primary_key=["id"]))
    assert schema.column_names == ["id", "name", "age", "__bucket", "__offset", "__timestamp"]
    assert [str(field.field_type) for field in schema.fields[3:]] == ["int", "long", "timestamptz"]
    assert [field.name for field in schema.fields if field.required] == ["id", "__bucket", "__offset", "__timestamp"]
    assert schema.identifier_field_names() == {"id"}
    assert lake_schema(spec_of(PEOPLE)).identifier_field_ids == []


def shown_partitions(spec: Any) -> list[str]:
    schema = lake_schema(spec)
    fields = partition_spec(spec, schema).fields
    return [f"{field.name}: {field.transform}({schema.find_column_name(field.source_id)})" for field in fields]


def test_partitions_are_the_keys_and_then_the_bucket() -> None:
    assert shown_partitions(spec_of(PEOPLE)) == ["__bucket: identity(__bucket)"]
    assert shown_partitions(spec_of(PEOPLE, bucket_keys=["age"])) == ["age_bucket: bucket[4](age)"]
    keyed = spec_of({"day": t.DateType(), **PEOPLE}, primary_key=["day", "id"], partition_keys=["day"])
    assert shown_partitions(keyed) == ["day: identity(day)", "id_bucket: bucket[4](id)"]
    # Fluss hashes floats, Iceberg does not.
    assert shown_partitions(spec_of({"f": t.DoubleType()}, bucket_keys=["f"])) == ["__bucket: identity(__bucket)"]


def test_a_table_with_another_bucket_hash_does_not_declare_that_of_iceberg() -> None:
    spec = spec_of(PEOPLE, bucket_keys=["age"])
    spec.descriptor.properties.pop("table.datalake.format")  # type: ignore[attr-defined]
    assert shown_partitions(spec) == ["__bucket: identity(__bucket)"]


NOON = dt.datetime(2026, 8, 1, 12, 0, 0, 123456)
HASHED: list[tuple[DataType, Any, Any]] = [
    (t.IntType(), -7, -7),
    (t.BigIntType(), 2**40, 2**40),
    (t.DateType(), date_to_days(dt.date(1969, 1, 1)), date_to_days(dt.date(1969, 1, 1))),
    (t.TimeType(3), 3_723_004, time_to_micros(dt.time(1, 2, 3, 4000))),
    (t.TimestampType(6), (datetime_to_micros(NOON) // 1000, 456_000), datetime_to_micros(NOON)),
    (t.DecimalType(10, 2), -12345, Decimal("-123.45")),
    (t.DecimalType(38, 0), 10**30, Decimal(10**30)),
    (t.StringType(), "Käse 🧀", "Käse 🧀"),
    (t.CharType(3), "abc", "abc"),
    (t.BytesType(), b"\x00\xff", b"\x00\xff"),
    (t.BinaryType(2), b"ab", b"ab"),
]


@pytest.mark.parametrize(("data_type", "value", "lake_value"), HASHED, ids=lambda each: str(each))
def test_icebergs_bucket_is_the_bucket_of_fluss(data_type: DataType, value: Any, lake_value: Any) -> None:
    """Engines that prune by `bucket(n, key)` must find the rows where the log put them."""
    assert "bucket" in shown_partitions(spec_of({"k": data_type}, bucket_keys=["k"]))[0]
    transform: Callable[[Any], Any] = BucketTransform(1000).transform(iceberg_type(data_type))
    key = encode_key([value], [data_type.not_null()], KeyEncoding.ICEBERG)
    assert transform(lake_value) == iceberg_bucket(key, 1000)


def test_rows_are_sorted_by_offset() -> None:
    schema = lake_schema(spec_of(PEOPLE))
    (field,) = sort_order(schema).fields
    assert (schema.find_column_name(field.source_id), field.direction.name) == ("__offset", "ASC")


def test_properties_of_iceberg_are_passed_on_and_others_kept() -> None:
    spec = spec_of(PEOPLE, properties={"iceberg.write.parquet.compression-codec": "snappy", "owner": "me"})
    properties = lake_properties(spec)
    assert properties["write.parquet.compression-codec"] == "snappy"
    assert properties["fluss.owner"] == "me"
    assert properties["fluss.table.datalake.format"] == "iceberg"
    assert properties["commit.retry.num-retries"] == "0"
    assert "write.delete.mode" not in properties
    assert lake_properties(spec_of(PEOPLE, primary_key=["id"]))["write.delete.mode"] == "merge-on-read"


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (lambda: spec_of({"__offset": t.IntType()}), "rename it"),
        (lambda: spec_of({"k": t.TimestampType(9)}, primary_key=["k"]), "different keys would become the same"),
        (lambda: spec_of({"k": t.DoubleType()}, primary_key=["k"]), "cannot identify"),
        (lambda: spec_of(PEOPLE, primary_key=["id", "name"]), "at most one bucket key"),
        (lambda: spec_of({"p": t.BytesType(), **PEOPLE}, partition_keys=["p"]), "partition key 'p'"),
        (lambda: spec_of(PEOPLE, properties={"iceberg.commit.retry.num-retries": "9"}), "needs '0'"),
        (lambda: spec_of(PEOPLE, properties={"iceberg.write.delete.mode": "copy-on-write"}), "merge-on-read"),
    ],
)
def test_tables_that_cannot_be_in_the_lake_are_refused(spec: Callable[[], Any], words: str) -> None:
    def look_at(made: Any) -> None:
        partition_spec(made, lake_schema(made))
        lake_properties(made)

    with pytest.raises(FlussError, match=words) as caught:
        look_at(spec())
    assert caught.value.error_code == ErrorCode.INVALID_TABLE_EXCEPTION


def test_catalogs_by_configuration(tmp_path: Any) -> None:
    local = catalog_properties({}, tmp_path)
    assert local["type"] == "sql"
    assert local["warehouse"] == f"file://{tmp_path}/lake/warehouse"
    rest = {"type": "rest", "uri": "http://127.0.0.1:1/", "warehouse": "s3://lake/", "s3.endpoint": "http://x"}
    assert catalog_properties(rest, tmp_path) == rest
    assert catalog_properties({"warehouse": "s3://lake/w"}, tmp_path)["warehouse"] == "s3://lake/w"
    with pytest.raises(FlussError, match="'hadoop' needs a JVM"):
        catalog_properties({"type": "hadoop", "warehouse": "/w"}, tmp_path)
    with pytest.raises(FlussError, match="no catalog is configured"):
        catalog_properties({}, None)


def test_other_formats_are_refused_with_what_to_do(tmp_path: Any) -> None:
    with pytest.raises(FlussError, match=r"set 'datalake\.format' to 'iceberg'") as caught:
        open_lake("paimon", {}, tmp_path)
    assert caught.value.error_code == ErrorCode.INVALID_CONFIG_EXCEPTION
