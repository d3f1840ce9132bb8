"""Table and database descriptors and their JSON."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fluss.model.descriptor import (
    DatabaseDescriptor,
    TableDescriptor,
    database_descriptor_from_json,
    database_descriptor_to_json,
    dump_json,
    table_descriptor_from_json,
    table_descriptor_to_json,
)
from tests.unit.model.strategies import database_descriptors, table_descriptors

# The worked example of the descriptor format.
EXAMPLE = b"""{"version":1,
 "schema":{"version":1,"columns":[
   {"name":"day","data_type":{"type":"STRING","nullable":false},"id":0},
   {"name":"sensor","data_type":{"type":"BIGINT","nullable":false},"id":1},
   {"name":"reading","data_type":{"type":"DOUBLE"},"comment":"celsius","id":2},
   {"name":"loc","data_type":{"type":"ROW","fields":[
      {"name":"lat","field_type":{"type":"DOUBLE"},"field_id":4},
      {"name":"lon","field_type":{"type":"DOUBLE"},"field_id":5}]},"id":3}],
  "primary_key":["day","sensor"],"highest_field_id":5},
 "comment":"temperature per sensor",
 "partition_key":["day"],
 "bucket_key":["sensor"],"bucket_count":4,
 "properties":{"table.replication.factor":"1","table.kv.format-version":"2",
               "table.log.ttl":"3 d"},
 "custom_properties":{"owner":"lab-7"}}"""


def test_the_example_survives() -> None:
    descriptor = table_descriptor_from_json(EXAMPLE)
    assert descriptor.physical_primary_key == ("sensor",)
    assert table_descriptor_to_json(descriptor) == json.loads(EXAMPLE)


@given(table_descriptors())
def test_table_round_trip(descriptor: TableDescriptor) -> None:
    assert table_descriptor_from_json(dump_json(table_descriptor_to_json(descriptor))) == descriptor


@given(database_descriptors)
def test_database_round_trip(descriptor: DatabaseDescriptor) -> None:
    assert database_descriptor_from_json(dump_json(database_descriptor_to_json(descriptor))) == descriptor


_json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(
    st.sampled_from(["schema", "partition_key", "bucket_key", "bucket_count", "properties", "comment"]), _json_values
)
def test_strange_documents_are_value_errors(key: str, value: Any) -> None:
    node = json.loads(EXAMPLE)
    node[key] = value
    with contextlib.suppress(ValueError):
        table_descriptor_from_json(dump_json(node))


@pytest.mark.parametrize("document", [b"", b"{", b"[]", b"3", b"\xff\xfe", b'{"schema": NaN}', b"[" * 200_000])
def test_no_descriptor_at_all(document: bytes) -> None:
    with pytest.raises(ValueError, match="JSON"):
        table_descriptor_from_json(document)
    with pytest.raises(ValueError, match="JSON"):
        database_descriptor_from_json(document)


def _document(**changes: Any) -> bytes:
    node: dict[str, Any] = {
        "schema": {
            "columns": [
                {"name": "a", "data_type": {"type": "INTEGER"}},
                {"name": "b", "data_type": {"type": "BIGINT"}},
                {"name": "c", "data_type": {"type": "STRING"}},
            ]
        }
    }
    node["schema"].update(changes.pop("schema", {}))
    return json.dumps(node | changes).encode()


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"schema": {"columns": [{"name": "a", "data_type": {"type": "INT"}}]}}, "INT"),
        ({"schema": {"columns": [{"name": "a", "data_type": {"type": "CHAR", "length": 0}}]}}, "length"),
        ({"schema": {"columns": [{"name": "a", "data_type": {"type": "DECIMAL", "precision": 39, "scale": 0}}]}}, "38"),
        ({"schema": {"columns": [{"name": "a", "data_type": {"type": "INTEGER"}}] * 2}}, "duplicate column"),
        ({"schema": {"primary_key": []}}, "primary_key"),
        ({"schema": {"primary_key": ["x"]}}, "'x'"),
        ({"schema": {"primary_key": ["a", "a"]}}, "duplicate primary-key"),
        ({"schema": {"auto_increment_column": ["a", "b"], "primary_key": ["c"]}}, "auto-increment"),
        ({"schema": {"auto_increment_column": ["a"]}}, "auto-increment"),
        ({"schema": {"auto_increment_column": ["a"], "primary_key": ["a"]}}, "auto-increment"),
        ({"schema": {"auto_increment_column": ["x"], "primary_key": ["a"]}}, "auto-increment"),
        ({"schema": {"auto_increment_column": ["c"], "primary_key": ["a"]}}, "INT or BIGINT"),
        ({"schema": {"highest_field_id": "x"}}, "highest_field_id"),
        ({"partition_key": ["x"]}, "partition key 'x'"),
        ({"partition_key": ["a", "a"]}, "duplicate partition key"),
        ({"partition_key": ["b"], "schema": {"primary_key": ["a"]}}, "part of the primary key"),
        ({"bucket_key": ["x"]}, "bucket key 'x'"),
        ({"bucket_key": ["a", "a"]}, "duplicate bucket key"),
        ({"bucket_key": ["a"], "partition_key": ["a"]}, "must not be a partition key as well"),
        ({"bucket_key": ["b"], "schema": {"primary_key": ["a"]}}, "part of the primary key"),
        ({"partition_key": ["a"], "schema": {"primary_key": ["a"]}}, "partition keys only"),
        ({"bucket_count": "3"}, "bucket_count"),
        ({"bucket_count": True}, "bucket_count"),
        ({"bucket_count": 2**40}, "bucket_count"),
        ({"comment": 3}, "comment"),
        ({"properties": []}, "properties"),
        ({"properties": {"k": None}}, "properties"),
        ({"custom_properties": {"k": [1]}}, "custom_properties"),
        ({"partition_key": "a"}, "partition_key"),
    ],
)
def test_broken_rules_are_named(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        table_descriptor_from_json(_document(**changes))


def test_ids_all_or_none() -> None:
    columns: list[dict[str, Any]] = [
        {"name": "a", "data_type": {"type": "INTEGER"}, "id": 0},
        {"name": "b", "data_type": {"type": "BIGINT"}},
    ]
    with pytest.raises(ValueError, match="these have none: b"):
        table_descriptor_from_json(_document(schema={"columns": columns}))
    columns[1]["id"] = 0
    with pytest.raises(ValueError, match="duplicate column or field id"):
        table_descriptor_from_json(_document(schema={"columns": columns}))
    columns[1]["id"] = 9
    with pytest.raises(ValueError, match="'highest_field_id' must be at least 9, got 3"):
        table_descriptor_from_json(_document(schema={"columns": columns, "highest_field_id": 3}))
    assert table_descriptor_from_json(_document(schema={"columns": columns})).schema.highest_field_id == 9
    kept = table_descriptor_from_json(_document(schema={"columns": columns, "highest_field_id": 12}))
    assert kept.schema.highest_field_id == 12


def test_keys_of_a_primary_key_table() -> None:
    found = table_descriptor_from_json(_document(schema={"primary_key": ["c", "a", "b"]}, partition_key=["a"]))
    assert found.bucket_keys == ("c", "b")
    assert [column.data_type.nullable for column in found.schema.columns] == [False, False, False]


def test_absent_keys_and_scalar_texts() -> None:
    found = table_descriptor_from_json(_document(properties={"n": 3, "b": True, "f": 1.5}, custom_properties=None))
    assert found.properties == {"n": "3", "b": "true", "f": "1.5"}
    assert (found.comment, found.partition_keys, found.bucket_keys, found.bucket_count) == (None, (), (), None)
    assert database_descriptor_from_json(b"{}") == DatabaseDescriptor()


def test_unknown_aggregation_functions_vanish() -> None:
    columns: list[dict[str, Any]] = [
        {"name": "a", "data_type": {"type": "INTEGER"}},
        {"name": "b", "data_type": {"type": "BIGINT"}, "agg_function": {"type": "SUM"}},
        {"name": "c", "data_type": {"type": "BIGINT"}, "agg_function": {"type": "median"}},
    ]
    schema = table_descriptor_from_json(_document(schema={"columns": columns, "primary_key": ["a"]})).schema
    assert [column.agg_function for column in schema.columns] == [None, {"type": "sum"}, None]
    columns[0]["agg_function"] = {"type": "sum"}
    with pytest.raises(ValueError, match="aggregation function"):
        table_descriptor_from_json(_document(schema={"columns": columns, "primary_key": ["a"]}))


def test_output_has_what_readers_need() -> None:
    node = table_descriptor_to_json(table_descriptor_from_json(_document()))
    assert node["partition_key"] == node["bucket_key"] == []
    assert node["properties"] == node["custom_properties"] == {}
    assert [column["id"] for column in node["schema"]["columns"]] == [0, 1, 2]
    assert "comment" not in node
    assert database_descriptor_to_json(DatabaseDescriptor()) == {"version": 1, "custom_properties": {}}
