"""CREATE_TABLE: order of checks, defaults, structure, and tables read back."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fluss.lake.tables.open_lake import lake_of
from fluss.model.paths import TablePath
from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol.api_keys import ApiKey
from tests.support.harness.coordinator import NOON_2024_09_19_MS, CoordinatorHarness
from tools.servers.messages import config_change, int_column, path, table_document, text_column

Make = Callable[..., CoordinatorHarness]
PK: dict[str, Any] = {"columns": [int_column("a"), int_column("b"), text_column("c")], "primary_key": ["a"]}


def exists(coordinator: CoordinatorHarness, name: str, database: str = "fluss", **more: Any) -> bool:
    request = pb.TableExistsRequest(table_path=path(name, database))
    return bool(coordinator.call(ApiKey.TABLE_EXISTS, request, **more).exists)


def test_life_of_a_table(coordinator: CoordinatorHarness) -> None:
    document = table_document(comment="x", bucket_count=3, custom_properties={"owner": "lab"})
    coordinator.create_table("t", document)
    assert exists(coordinator, "t", tablet=True)
    assert not exists(coordinator, "t", "nowhere")
    names = coordinator.call(ApiKey.LIST_TABLES, pb.ListTablesRequest(database_name="fluss"), tablet=True)
    assert list(names.table_name) == ["t"]
    info = coordinator.table_info("t")
    assert (info.table_id, info.schema_id) == (0, 1)
    assert (info.created_time, info.modified_time) == (NOON_2024_09_19_MS, NOON_2024_09_19_MS)
    node = json.loads(info.table_json)
    assert (node["comment"], node["bucket_count"], node["custom_properties"]) == ("x", 3, {"owner": "lab"})
    assert node["properties"] == {"table.replication.factor": "1"}
    coordinator.call(ApiKey.DROP_TABLE, pb.DropTableRequest(table_path=path("t"), ignore_if_not_exists=False))
    assert not exists(coordinator, "t", tablet=True)
    coordinator.refuses(7, ApiKey.GET_TABLE_INFO, pb.GetTableInfoRequest(table_path=path("t")), tablet=True)
    coordinator.now_ms += 1
    coordinator.create_table("t")
    info = coordinator.table_info("t")
    assert (info.table_id, info.schema_id, info.created_time) == (1, 1, NOON_2024_09_19_MS + 1)


def test_drop_of_a_missing_table(coordinator: CoordinatorHarness) -> None:
    for name in ("x", "no.such", ""):
        request = pb.DropTableRequest(table_path=path(name), ignore_if_not_exists=False)
        coordinator.refuses(7, ApiKey.DROP_TABLE, request)
        request.ignore_if_not_exists = True
        coordinator.call(ApiKey.DROP_TABLE, request)


def test_existing_tables(coordinator: CoordinatorHarness) -> None:
    coordinator.create_table("t")
    coordinator.refuses_table(8, table_document())
    coordinator.create_table("t", table_document(bucket_count=9), ignore=True)
    assert coordinator.table_node("t")["bucket_count"] == 1


BROKEN = table_document(properties={"table.nonsense": "1"})


def test_validation_comes_before_existence(coordinator: CoordinatorHarness) -> None:
    coordinator.create_table("t")
    coordinator.refuses_table(39, BROKEN)
    coordinator.refuses_table(39, BROKEN, ignore=True)
    coordinator.refuses_table(39, BROKEN, database="nowhere")
    coordinator.refuses_table(4, table_document(), database="nowhere")
    coordinator.refuses_table(4, table_document(), database="nowhere", ignore=True)


@pytest.mark.parametrize(
    ("database", "table", "code"),
    [("a.b", "t", 16), ("a.b", "c.d", 16), ("__x", "t", 16), ("fluss", "a b", 15), ("fluss", "__t", 15), ("", "", 16)],
)
def test_names_come_first(coordinator: CoordinatorHarness, database: str, table: str, code: int) -> None:
    request = pb.CreateTableRequest(table_path=path(table, database), table_json=b"{broken", ignore_if_exists=True)
    coordinator.refuses(code, ApiKey.CREATE_TABLE, request)


def test_first_failure_wins(make_coordinator: Make) -> None:
    # parse (15) before kinds (15) before defaults and properties (39) before placement (17)
    no_logs = make_coordinator(allow_create_log_tables=False)
    assert "JSON" in no_logs.refuses_table(15, b"{")
    assert "allow.create.log.tables" in no_logs.refuses_table(15, BROKEN)
    no_logs.create_table("pk", table_document(**PK))
    no_kv = make_coordinator(allow_create_kv_tables=False)
    assert "allow.create.kv.tables" in no_kv.refuses_table(15, table_document(**PK))
    plain = make_coordinator()
    both = {"table.nonsense": "1", "table.replication.factor": "5"}
    plain.refuses_table(39, table_document(properties=both))
    plain.refuses_table(17, table_document(properties={"table.replication.factor": "5"}, bucket_count=0))


def test_replication_factor_and_tablets(make_coordinator: Make) -> None:
    two = make_coordinator(tablets=2)
    two.create_table("a", table_document(properties={"table.replication.factor": "2"}))
    assert "2 usable" in two.refuses_table(17, table_document(properties={"table.replication.factor": "3"}))
    # a partitioned table is refused when its partition is created
    document = table_document([text_column("p")], partition_key=["p"], properties={"table.replication.factor": "3"})
    two.create_table("p", document)


@pytest.mark.parametrize("count", [0, -1])
def test_no_buckets(coordinator: CoordinatorHarness, count: int) -> None:
    coordinator.refuses_table(-1, table_document(bucket_count=count))
    coordinator.create_table("p", table_document([text_column("p")], partition_key=["p"], bucket_count=count))


def test_too_many_buckets(make_coordinator: Make) -> None:
    coordinator = make_coordinator(max_bucket_num=4)
    coordinator.create_table("ok", table_document(bucket_count=4))
    assert "max.bucket.num" in coordinator.refuses_table(49, table_document(bucket_count=5))


# Defaults (section 4.2)


def test_cluster_defaults(make_coordinator: Make) -> None:
    coordinator = make_coordinator(default_bucket_number=3, datalake_format="iceberg")
    coordinator.create_table("t")
    node = coordinator.table_node("t")
    assert node["bucket_count"] == 3
    assert node["bucket_key"] == []
    assert node["properties"] == {"table.replication.factor": "1", "table.datalake.format": "iceberg"}
    coordinator.create_table("u", table_document(properties={"table.datalake.format": "paimon"}, bucket_count=2))
    node = coordinator.table_node("u")
    assert (node["bucket_count"], node["properties"]["table.datalake.format"]) == (2, "paimon")


def test_defaults_of_primary_key_tables(coordinator: CoordinatorHarness) -> None:
    columns = [int_column("a"), int_column("b"), text_column("c")]
    coordinator.create_table("t", table_document(columns, primary_key=["c", "a", "b"], partition_key=["a"]))
    node = coordinator.table_node("t")
    assert node["bucket_key"] == ["c", "b"]
    assert node["properties"] == {"table.replication.factor": "1", "table.kv.format-version": "2"}
    assert all(column["data_type"]["nullable"] is False for column in node["schema"]["columns"])
    coordinator.create_table("v1", table_document(**PK, properties={"table.kv.format-version": "1"}))
    assert coordinator.table_node("v1")["properties"]["table.kv.format-version"] == "1"


@pytest.mark.parametrize("engine", ["first_row", "versioned", "aggregation"])
def test_merge_engines_ignore_deletes(coordinator: CoordinatorHarness, engine: str) -> None:
    properties = {"table.merge-engine": engine, "table.merge-engine.versioned.ver-column": "b"}
    coordinator.create_table("t", table_document(**PK, properties=properties))
    assert coordinator.table_node("t")["properties"]["table.delete.behavior"] == "IGNORE"
    coordinator.create_table("u", table_document(**PK, properties=properties | {"table.delete.behavior": "disable"}))
    assert coordinator.table_node("u")["properties"]["table.delete.behavior"] == "disable"


def test_several_partition_keys_have_nothing_in_advance(coordinator: CoordinatorHarness) -> None:
    columns = [text_column("d"), text_column("r"), int_column("v")]
    properties = {"table.auto-partition.enabled": "true", "table.auto-partition.key": "d"}
    coordinator.create_table("t", table_document(columns, partition_key=["d", "r"], properties=properties))
    assert coordinator.table_node("t")["properties"]["table.auto-partition.num-precreate"] == "0"


def test_a_schema_comes_back_as_sent(coordinator: CoordinatorHarness) -> None:
    row = {
        "type": "ROW",
        "fields": [
            {"name": "x", "field_type": {"type": "DOUBLE"}, "field_id": 8, "description": "d"},
            {"name": "y", "field_type": {"type": "ARRAY", "element_type": {"type": "DATE"}}, "field_id": 5},
        ],
    }
    schema = {
        "version": 1,
        "columns": [int_column("a", id=3, comment="first"), {"name": "r", "data_type": row, "id": 4}],
        "highest_field_id": 20,
    }
    coordinator.create_table("t", table_document(schema=schema))
    assert coordinator.table_node("t")["schema"] == schema
    answer = coordinator.call(ApiKey.GET_TABLE_SCHEMA, pb.GetTableSchemaRequest(table_path=path("t")), tablet=True)
    assert (answer.schema_id, json.loads(answer.schema_json)) == (1, schema)


def test_schemas_by_id(coordinator: CoordinatorHarness) -> None:
    coordinator.create_table("t")
    request = pb.GetTableSchemaRequest(table_path=path("t"), schema_id=1)
    assert coordinator.call(ApiKey.GET_TABLE_SCHEMA, request).schema_id == 1
    for missing in (0, 2, -1):
        request.schema_id = missing
        coordinator.refuses(9, ApiKey.GET_TABLE_SCHEMA, request)
    coordinator.refuses(9, ApiKey.GET_TABLE_SCHEMA, pb.GetTableSchemaRequest(table_path=path("x")))


def test_lake_settings_are_shown_without_secrets(make_coordinator: Make, tmp_path: Path) -> None:
    values = {
        "datalake.iceberg.type": "sql",
        "datalake.iceberg.uri": f"sqlite:///{tmp_path}/own.sqlite",
        "datalake.iceberg.warehouse": f"file://{tmp_path}/own",
        "datalake.iceberg.s3.secret-access": "hidden",
        "datalake.iceberg.accessKey": "hidden",
        "datalake.iceberg.Password": "hidden",
        "datalake.iceberg.token": "hidden",
        "datalake.paimon.warehouse": "/other",
    }
    coordinator = make_coordinator(datalake_format="iceberg", values=values)
    coordinator.create_table("off")
    assert "table.datalake.iceberg.warehouse" not in coordinator.table_node("off")["properties"]
    coordinator.create_table("on", table_document(properties={"table.datalake.enabled": "true"}))
    expected = {
        "table.datalake.enabled": "true",
        "table.datalake.format": "iceberg",
        "table.replication.factor": "1",
        "table.datalake.iceberg.type": "sql",
        "table.datalake.iceberg.uri": values["datalake.iceberg.uri"],
        "table.datalake.iceberg.warehouse": values["datalake.iceberg.warehouse"],
    }
    assert coordinator.table_node("on")["properties"] == expected
    changes = [config_change("datalake.iceberg.uri", "postgresql://me:hidden@host/db")]
    coordinator.call(ApiKey.ALTER_CLUSTER_CONFIGS, pb.AlterClusterConfigsRequest(alter_configs=changes))
    assert coordinator.table_node("on")["properties"]["table.datalake.iceberg.uri"] == "postgresql://me@host/db"


def test_the_default_lake_is_shown_with_absolute_addresses(make_coordinator: Make) -> None:
    coordinator = make_coordinator()
    coordinator.create_table("plain")
    coordinator.create_table("on", table_document(properties={"table.datalake.enabled": "true"}))
    assert coordinator.table_node("plain")["properties"] == {"table.replication.factor": "1"}
    properties = coordinator.table_node("on")["properties"]
    lake = coordinator.config.data_dir / "lake"
    assert properties["table.datalake.format"] == "iceberg"
    assert properties["table.datalake.iceberg.uri"].startswith(f"sqlite:///{lake}/catalog.sqlite")
    assert properties["table.datalake.iceberg.warehouse"] == f"file://{lake}/warehouse"
    opened = lake_of(properties)
    assert opened.load(TablePath("fluss", "on")).snapshot_id is None
    opened.close()
