"""ALTER_TABLE: properties and new columns."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from fluss.lake.tables.open_lake import lake_of
from fluss.model.paths import TablePath
from fluss.model.properties import ALTERABLE_TABLE_PROPERTIES, TABLE_PROPERTIES
from fluss.model.schema import Column
from fluss.model.types import IntType
from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol.api_keys import ApiKey
from tests.support.harness.coordinator import NOON_2024_09_19_MS, CoordinatorHarness
from tools.servers.messages import alter_properties, config_change, int_column, path, table_document, text_column

Make = Callable[..., CoordinatorHarness]
LATER_MS = NOON_2024_09_19_MS + 1000
INTEGER = b'{"type":"INTEGER"}'


def add_column(name: str, data_type: bytes = INTEGER, position: int = 0, **more: Any) -> pb.PbAddColumn:
    return pb.PbAddColumn(column_name=name, data_type_json=data_type, column_position_type=position, **more)


def alter_columns(table: str, *added: pb.PbAddColumn, **more: Any) -> pb.AlterTableRequest:
    return pb.AlterTableRequest(table_path=path(table), ignore_if_not_exists=False, add_columns=added, **more)


@pytest.fixture
def log_table(coordinator: CoordinatorHarness) -> CoordinatorHarness:
    coordinator.create_table("t", table_document([int_column("a")], custom_properties={"old": "1"}))
    coordinator.now_ms = LATER_MS
    return coordinator


def test_properties(log_table: CoordinatorHarness) -> None:
    changes = {"table.log.ttl": "1 d", "owner": "me", "old": None, "never": None}
    log_table.call(ApiKey.ALTER_TABLE, alter_properties("t", changes))
    node = log_table.table_node("t")
    assert node["properties"] == {"table.replication.factor": "1", "table.log.ttl": "1 d"}
    assert node["custom_properties"] == {"owner": "me"}
    info = log_table.table_info("t")
    assert (info.created_time, info.modified_time, info.schema_id) == (NOON_2024_09_19_MS, LATER_MS, 1)
    entry = log_table.tablet_catalog
    entry.refresh()
    found = entry.table_by_id(0)
    assert found is not None
    assert found.property("table.log.ttl") == 86_400_000
    log_table.call(ApiKey.ALTER_TABLE, alter_properties("t", {"table.log.ttl": None}))
    assert "table.log.ttl" not in log_table.table_node("t")["properties"]


@pytest.mark.parametrize("changes", [{"old": "1"}, {"table.log.ttl": None}, {"nothing": None}, {}])
def test_an_empty_change_keeps_the_modified_time(log_table: CoordinatorHarness, changes: dict[str, str | None]) -> None:
    log_table.call(ApiKey.ALTER_TABLE, alter_properties("t", changes))
    assert log_table.table_info("t").modified_time == NOON_2024_09_19_MS


@pytest.mark.parametrize("key", [*sorted(TABLE_PROPERTIES.keys() - ALTERABLE_TABLE_PROPERTIES), "table.unknown"])
def test_fixed_properties(log_table: CoordinatorHarness, key: str) -> None:
    assert key in log_table.refuses(56, ApiKey.ALTER_TABLE, alter_properties("t", {key: "1"}))
    log_table.refuses(56, ApiKey.ALTER_TABLE, alter_properties("t", {key: None}))


def test_all_fixed_keys_are_listed(log_table: CoordinatorHarness) -> None:
    changes = {"table.log.ttl": "1 d", "table.log.format": "ARROW", "table.kv.format": "INDEXED"}
    text = log_table.refuses(56, ApiKey.ALTER_TABLE, alter_properties("t", changes))
    assert "table.log.format, table.kv.format" in text


@pytest.mark.parametrize("operation", [2, 3, 4, -1])
def test_only_set_and_delete(log_table: CoordinatorHarness, operation: int) -> None:
    request = alter_properties("t", {})
    request.config_changes.append(config_change("owner", "x", operation))
    log_table.refuses(-1, ApiKey.ALTER_TABLE, request)


def test_set_needs_a_value(log_table: CoordinatorHarness) -> None:
    request = alter_properties("t", {})
    request.config_changes.append(config_change("owner", None, 0))
    log_table.refuses(-1, ApiKey.ALTER_TABLE, request)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"table.log.ttl": "soon"}, 39),
        ({"table.log.tiered.local-segments": "0"}, 39),
        ({"table.auto-partition.enabled": "true"}, 39),
        ({"table.statistics.columns": "x"}, 39),
        ({"table.kv.standby-replica.enabled": "true"}, 56),
        ({"table.datalake.freshness": "1 min"}, 56),
        ({"table.datalake.enabled": "true", "table.datalake.freshness": "1 min"}, 56),
    ],
)
def test_the_result_is_checked(log_table: CoordinatorHarness, changes: dict[str, str | None], code: int) -> None:
    assert "fluss.t" in log_table.refuses(code, ApiKey.ALTER_TABLE, alter_properties("t", changes))
    assert log_table.table_info("t").modified_time == NOON_2024_09_19_MS


def test_missing_tables_and_names(coordinator: CoordinatorHarness) -> None:
    request = alter_properties("x", {"a": "b"})
    coordinator.refuses(7, ApiKey.ALTER_TABLE, request)
    request.ignore_if_not_exists = True
    coordinator.call(ApiKey.ALTER_TABLE, request)
    coordinator.refuses(15, ApiKey.ALTER_TABLE, alter_properties("__x", {"a": "b"}))
    request.table_path.database_name = "a.b"
    coordinator.refuses(16, ApiKey.ALTER_TABLE, request)


def test_properties_and_columns_exclude_each_other(log_table: CoordinatorHarness) -> None:
    request = alter_properties("t", {"a": "b"}, add_columns=[add_column("c")])
    log_table.refuses(56, ApiKey.ALTER_TABLE, request)
    request = alter_properties("x", {"a": "b"}, drop_columns=[pb.PbDropColumn(column_name="a")])
    log_table.refuses(56, ApiKey.ALTER_TABLE, request)


# The lake


ENABLE: dict[str, str | None] = {"table.datalake.enabled": "true"}


def lake_columns(coordinator: CoordinatorHarness, name: str) -> list[str]:
    lake = lake_of(coordinator.table_node(name)["properties"])
    try:
        return [field.name for field in lake.catalog.load_table(("fluss", name)).schema().fields]  # type: ignore[attr-defined]
    finally:
        lake.close()


def test_enabling_the_lake(make_coordinator: Make) -> None:
    coordinator = make_coordinator()
    coordinator.create_table("free")
    coordinator.create_table("keyed", table_document(bucket_key=["a"]))
    coordinator.create_table("pk", table_document(primary_key=["a"]))
    for fixed in ("keyed", "pk"):
        coordinator.refuses(56, ApiKey.ALTER_TABLE, alter_properties(fixed, ENABLE))
    both: dict[str, str | None] = {**ENABLE, "table.datalake.freshness": "1 min"}
    coordinator.refuses(56, ApiKey.ALTER_TABLE, alter_properties("free", both))
    coordinator.call(ApiKey.ALTER_TABLE, alter_properties("free", ENABLE))
    properties = coordinator.table_node("free")["properties"]
    assert (properties["table.datalake.enabled"], properties["table.datalake.format"]) == ("true", "iceberg")
    assert lake_columns(coordinator, "free") == ["a", "__bucket", "__offset", "__timestamp"]
    coordinator.call(ApiKey.ALTER_TABLE, alter_properties("free", {"table.datalake.freshness": "1 min"}))
    changes = [config_change("datalake.format", "iceberg")]
    coordinator.call(ApiKey.ALTER_CLUSTER_CONFIGS, pb.AlterClusterConfigsRequest(alter_configs=changes))
    coordinator.create_table("new", table_document(primary_key=["a"]))
    coordinator.call(ApiKey.ALTER_TABLE, alter_properties("new", ENABLE))
    assert lake_columns(coordinator, "new")[0] == "a"


def test_a_lake_that_is_switched_off_cannot_be_enabled(make_coordinator: Make) -> None:
    coordinator = make_coordinator(datalake_enabled=False)
    coordinator.create_table("free")
    text = coordinator.refuses(56, ApiKey.ALTER_TABLE, alter_properties("free", ENABLE))
    assert "datalake.enabled" in text
    assert not (coordinator.config.data_dir / "lake").exists()


def test_columns_of_a_lake_table_need_the_lake(make_coordinator: Make) -> None:
    coordinator = make_coordinator()
    coordinator.create_table("t", table_document(properties={"table.datalake.enabled": "true"}))
    coordinator.call(ApiKey.ALTER_TABLE, alter_columns("t", add_column("b")))
    assert lake_columns(coordinator, "t") == ["a", "b", "__bucket", "__offset", "__timestamp"]
    changes = [config_change("datalake.enabled", "false")]
    coordinator.call(ApiKey.ALTER_CLUSTER_CONFIGS, pb.AlterClusterConfigsRequest(alter_configs=changes))
    coordinator.refuses(56, ApiKey.ALTER_TABLE, alter_columns("t", add_column("c")))
    assert lake_columns(coordinator, "t") == ["a", "b", "__bucket", "__offset", "__timestamp"]


def test_a_column_that_only_the_lake_has_is_used(make_coordinator: Make) -> None:
    """A crash between the two steps leaves this state."""
    coordinator = make_coordinator()
    coordinator.create_table("t", table_document(properties={"table.datalake.enabled": "true"}))
    lake = lake_of(coordinator.table_node("t")["properties"])
    lake.add_columns(TablePath("fluss", "t"), [Column("b", IntType())])
    lake.close()
    coordinator.call(ApiKey.ALTER_TABLE, alter_columns("t", add_column("b")))
    assert [column["name"] for column in coordinator.table_node("t")["schema"]["columns"]] == ["a", "b"]
    assert lake_columns(coordinator, "t") == ["a", "b", "__bucket", "__offset", "__timestamp"]


# Columns


def test_several_columns_are_one_new_schema(coordinator: CoordinatorHarness) -> None:
    nested = {"name": "r", "data_type": {"type": "ROW", "fields": [{"name": "x", "field_type": {"type": "DATE"}}]}}
    coordinator.create_table("t", table_document([int_column("a"), nested]))
    coordinator.now_ms = LATER_MS
    row = json.dumps({"type": "ROW", "fields": [{"name": "y", "field_type": {"type": "DATE"}}]}).encode()
    added = [add_column("b", comment="new"), add_column("s", row), add_column("c", b'{"type":"STRING"}')]
    coordinator.call(ApiKey.ALTER_TABLE, alter_columns("t", *added))
    info = coordinator.table_info("t")
    assert (info.schema_id, info.modified_time) == (2, NOON_2024_09_19_MS)
    schema = json.loads(info.table_json)["schema"]
    assert [(column["name"], column["id"]) for column in schema["columns"]] == [
        ("a", 0),
        ("r", 1),
        ("b", 3),
        ("s", 4),
        ("c", 6),
    ]
    assert schema["columns"][2]["comment"] == "new"
    assert schema["columns"][3]["data_type"]["fields"][0]["field_id"] == 5
    assert schema["highest_field_id"] == 6
    for schema_id, count in ((1, 2), (2, 5)):
        request = pb.GetTableSchemaRequest(table_path=path("t"), schema_id=schema_id)
        answer = coordinator.call(ApiKey.GET_TABLE_SCHEMA, request, tablet=True)
        assert len(json.loads(answer.schema_json)["columns"]) == count
    metadata = coordinator.call(ApiKey.GET_METADATA, pb.MetadataRequest(table_path=[path("t")]), tablet=True)
    assert metadata.table_metadata[0].schema_id == 2


@pytest.mark.parametrize(
    ("column", "code"),
    [
        (add_column("a"), 56),
        (add_column("b", b'{"type":"INTEGER","nullable":false}'), -1),
        (add_column("b", position=1), -1),
        (add_column("b", position=3), -1),
        (add_column("__offset"), 15),
        (add_column("b", b"{"), 56),
        (add_column("b", b'{"type":"INT"}'), 56),
        (add_column("b", agg_function_type="sum"), 39),
        (add_column("b", agg_function_type="median"), 39),
    ],
)
def test_bad_columns(log_table: CoordinatorHarness, column: pb.PbAddColumn, code: int) -> None:
    log_table.refuses(code, ApiKey.ALTER_TABLE, alter_columns("t", column))
    # all or none
    log_table.refuses(code, ApiKey.ALTER_TABLE, alter_columns("t", add_column("fine"), column))
    assert log_table.table_info("t").schema_id == 1


def test_the_same_column_twice(log_table: CoordinatorHarness) -> None:
    log_table.refuses(56, ApiKey.ALTER_TABLE, alter_columns("t", add_column("b"), add_column("b")))


@pytest.mark.parametrize(
    "change",
    [
        {"drop_columns": [pb.PbDropColumn(column_name="a")]},
        {"rename_columns": [pb.PbRenameColumn(old_column_name="a", new_column_name="b")]},
        {"modify_columns": [pb.PbModifyColumn(column_name="a", comment="x")]},
    ],
)
def test_other_column_changes_are_refused(log_table: CoordinatorHarness, change: dict[str, Any]) -> None:
    log_table.refuses(-1, ApiKey.ALTER_TABLE, alter_columns("t", **change))


def test_aggregated_columns(coordinator: CoordinatorHarness) -> None:
    properties = {"table.merge-engine": "aggregation"}
    coordinator.create_table("t", table_document(primary_key=["a"], properties=properties))
    parameters = [pb.PbKeyValue(key="delimiter", value="|")]
    text = b'{"type":"STRING"}'
    column = add_column("s", text, agg_function_type="LISTAGG", agg_function_params=parameters)
    coordinator.call(ApiKey.ALTER_TABLE, alter_columns("t", column))
    function = coordinator.table_node("t")["schema"]["columns"][1]["agg_function"]
    assert function == {"type": "listagg", "parameters": {"delimiter": "|"}}
    bad = add_column("x", text, agg_function_type="sum")
    coordinator.refuses(39, ApiKey.ALTER_TABLE, alter_columns("t", bad))


def test_altering_auto_partitioning_acts_at_once(coordinator: CoordinatorHarness) -> None:
    properties = {"table.auto-partition.time-zone": "UTC"}
    coordinator.create_table("t", table_document([text_column("d")], partition_key=["d"], properties=properties))
    assert coordinator.partition_names("t") == []
    coordinator.call(ApiKey.ALTER_TABLE, alter_properties("t", {"table.auto-partition.enabled": "true"}))
    assert coordinator.partition_names("t") == ["20240919", "20240920"]
    coordinator.call(ApiKey.ALTER_TABLE, alter_properties("t", {"table.auto-partition.num-precreate": "3"}))
    assert coordinator.partition_names("t") == ["20240919", "20240920", "20240921"]
