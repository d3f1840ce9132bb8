"""Structure and property rules of tables, each with its code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fluss.model.names import RESERVED_COLUMN_NAMES
from tests.support.harness.coordinator import CoordinatorHarness
from tools.servers.messages import int_column, table_document, text_column

Make = Callable[..., CoordinatorHarness]


def column(name: str, data_type: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"name": name, "data_type": data_type, **more}


ARRAY = {"type": "ARRAY", "element_type": {"type": "INTEGER"}}
MAP = {"type": "MAP", "key_type": {"type": "INTEGER"}, "value_type": {"type": "INTEGER"}}
ROW = {"type": "ROW", "fields": [{"name": "f", "field_type": {"type": "INTEGER"}}]}
NESTED = [ARRAY, MAP, ROW]
DECIMAL = {"type": "DECIMAL", "precision": 5, "scale": 0}
TIMESTAMP = {"type": "TIMESTAMP_WITHOUT_TIME_ZONE", "precision": 3}
TIMESTAMP_LTZ = {"type": "TIMESTAMP_WITH_LOCAL_TIME_ZONE", "precision": 3}
TIME = {"type": "TIME_WITHOUT_TIME_ZONE", "precision": 0}
PLAIN_NAMES = ["STRING", "BOOLEAN", "BYTES", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "DATE", "FLOAT", "DOUBLE"]
PARTITION_TYPES = [
    *({"type": name} for name in PLAIN_NAMES),
    {"type": "CHAR", "length": 3},
    {"type": "BINARY", "length": 3},
    TIME,
    TIMESTAMP,
    TIMESTAMP_LTZ,
]


@pytest.mark.parametrize(
    "parts",
    [
        {"partition_key": ["b"], "primary_key": ["a"]},
        {"partition_key": ["x"]},
        {"bucket_key": ["b"], "partition_key": ["b"]},
        {"bucket_key": ["b"], "primary_key": ["a"]},
        {"partition_key": ["a"], "primary_key": ["a"]},
        {"bucket_key": ["x"]},
    ],
)
def test_keys(coordinator: CoordinatorHarness, parts: dict[str, Any]) -> None:
    coordinator.refuses_table(15, table_document([int_column("a"), text_column("b")], **parts))


@pytest.mark.parametrize("nested", NESTED)
def test_nested_keys(coordinator: CoordinatorHarness, nested: dict[str, Any]) -> None:
    columns = [column("n", nested), int_column("a")]
    assert "bucket-key column 'n'" in coordinator.refuses_table(15, table_document(columns, bucket_key=["n"]))
    assert "primary-key column 'n'" in coordinator.refuses_table(15, table_document(columns, primary_key=["n"]))
    assert "partition key 'n'" in coordinator.refuses_table(15, table_document(columns, partition_key=["n"]))


@pytest.mark.parametrize("data_type", PARTITION_TYPES)
def test_types_of_partition_keys(coordinator: CoordinatorHarness, data_type: dict[str, Any]) -> None:
    coordinator.create_table("t", table_document([column("p", data_type), int_column("a")], partition_key=["p"]))


def test_decimal_is_no_partition_key(coordinator: CoordinatorHarness) -> None:
    coordinator.refuses_table(15, table_document([column("p", DECIMAL)], partition_key=["p"]))


@pytest.mark.parametrize("name", sorted(RESERVED_COLUMN_NAMES))
def test_reserved_names(coordinator: CoordinatorHarness, name: str) -> None:
    assert name in coordinator.refuses_table(15, table_document([int_column(name)]))
    coordinator.create_table("t", table_document([int_column(name.upper())]))


LOG_COLUMNS = [int_column("a"), text_column("c"), column("m", MAP), column("y", {"type": "BYTES"})]


@pytest.mark.parametrize(
    ("properties", "code", "text"),
    [
        ({"owner": "x"}, 39, "custom properties"),
        ({"table.unknown": "x"}, 39, "unknown property 'table.unknown'"),
        ({"table.log.ttl": "x"}, 39, "table.log.ttl"),
        ({"table.replication.factor": "0"}, 17, "at least 1"),
        ({"table.replication.factor": "-1"}, 17, "at least 1"),
        ({"table.replication.factor": "one"}, 39, "table.replication.factor"),
        ({"table.log.arrow.compression.zstd.level": "0"}, 39, "1 to 22"),
        ({"table.log.arrow.compression.zstd.level": "23"}, 39, "1 to 22"),
        ({"table.kv.format-version": "3"}, 39, "format-version"),
        ({"table.merge-engine": "first_row"}, 39, "primary key"),
        ({"table.delete.behavior": "allow"}, 39, "primary key"),
        ({"table.log.tiered.local-segments": "0"}, 39, "at least 1"),
        ({"table.log.local-ttl": "8 d"}, 39, "table.log.local-ttl"),
        ({"table.log.local-ttl": "2 h", "table.log.ttl": "1 h"}, 39, "table.log.local-ttl"),
        ({"table.auto-partition.enabled": "true"}, 39, "partitioned"),
        ({"table.statistics.columns": ""}, 39, "statistics"),
        ({"table.statistics.columns": "a,,c"}, 39, "statistics"),
        ({"table.statistics.columns": "x"}, 39, "'x'"),
        ({"table.statistics.columns": "a, m"}, 39, "'m'"),
        ({"table.statistics.columns": "y"}, 39, "'y'"),
        ({"table.datalake.enabled": "true", "table.datalake.format": "paimon"}, 39, "lake of the cluster"),
        ({"table.datalake.format": "delta"}, 39, "table.datalake.format"),
        ({"table.datalake.historical-partition.enabled": "true"}, 39, "requires"),
        ({"table.auto-partition.time-zone": "Mars/Olympus"}, 39, "time-zone"),
    ],
)
def test_log_table_properties(
    coordinator: CoordinatorHarness, properties: dict[str, str], code: int, text: str
) -> None:
    message = coordinator.refuses_table(code, table_document(LOG_COLUMNS, properties=properties))
    assert text in message
    assert "fluss.t" in message


@pytest.mark.parametrize(
    "properties",
    [
        {"table.log.format": "indexed"},
        {"table.log.format": "COMPACTED", "table.log.arrow.compression.type": "none"},
        {"table.log.arrow.compression.zstd.level": "22"},
        {"table.log.ttl": "0ms", "table.log.local-ttl": "9 d"},
        {"table.log.ttl": "1 h", "table.log.local-ttl": "1 h"},
        {"table.log.ttl": "1 h", "table.log.local-ttl": "0ms"},
        {"table.statistics.columns": "*"},
        {"table.statistics.columns": "c , a"},
        {"table.datalake.format": "iceberg"},
        {"table.datalake.format": "PAIMON", "table.datalake.enabled": "false"},
        {"table.auto-partition.time-zone": "Europe/Berlin"},
        {"table.auto-partition.time-zone": "GMT+8"},
        {"table.changelog.image": "wal"},
    ],
)
def test_good_log_table_properties(coordinator: CoordinatorHarness, properties: dict[str, str]) -> None:
    coordinator.create_table("t", table_document(LOG_COLUMNS, properties=properties))
    stored = coordinator.table_node("t")["properties"]
    assert {key: stored[key] for key in properties} == properties


KV_COLUMNS = [
    column("a", {"type": "INTEGER"}),
    column("v", {"type": "BIGINT"}),
    column("t", TIMESTAMP),
    column("s", {"type": "STRING"}),
]
VERSIONED = {"table.merge-engine": "versioned"}
VERSION_COLUMN = "table.merge-engine.versioned.ver-column"


@pytest.mark.parametrize(
    ("properties", "text"),
    [
        ({"table.log.format": "INDEXED"}, "ARROW or COMPACTED"),
        (VERSIONED, VERSION_COLUMN),
        (VERSIONED | {VERSION_COLUMN: "x"}, "'x'"),
        (VERSIONED | {VERSION_COLUMN: "s"}, "STRING"),
        ({"table.merge-engine": "aggregation", "table.changelog.image": "WAL"}, "WAL"),
        ({"table.merge-engine": "first_row", "table.delete.behavior": "allow"}, "ignore or disable"),
        (VERSIONED | {VERSION_COLUMN: "v", "table.delete.behavior": "ALLOW"}, "ignore or disable"),
        ({"table.statistics.columns": "*"}, "log tables"),
        ({"table.kv.format-version": "0"}, "format-version"),
    ],
)
def test_primary_key_table_properties(coordinator: CoordinatorHarness, properties: dict[str, str], text: str) -> None:
    document = table_document(KV_COLUMNS, primary_key=["a"], properties=properties)
    assert text in coordinator.refuses_table(39, document)


@pytest.mark.parametrize(
    "properties",
    [
        {"table.log.format": "COMPACTED"},
        {"table.log.format": "INDEXED", "table.kv.format": "INDEXED"},
        VERSIONED | {VERSION_COLUMN: "v"},
        VERSIONED | {VERSION_COLUMN: "t"},
        {"table.merge-engine": "aggregation", "table.delete.behavior": "allow"},
        {"table.merge-engine": "first_row", "table.delete.behavior": "disable"},
        {"table.changelog.image": "WAL"},
    ],
)
def test_good_primary_key_table_properties(coordinator: CoordinatorHarness, properties: dict[str, str]) -> None:
    coordinator.create_table("t", table_document(KV_COLUMNS, primary_key=["a"], properties=properties))


@pytest.mark.parametrize(
    ("function", "properties", "text"),
    [
        ({"type": "sum"}, {}, "aggregation"),
        ({"type": "sum"}, {"table.merge-engine": "first_row"}, "aggregation"),
        ({"type": "bool_and"}, {"table.merge-engine": "aggregation"}, "'v'"),
        ({"type": "sum", "parameters": {"x": "1"}}, {"table.merge-engine": "aggregation"}, "'x'"),
    ],
)
def test_aggregation_functions(
    coordinator: CoordinatorHarness, function: dict[str, Any], properties: dict[str, str], text: str
) -> None:
    columns = [int_column("a"), column("v", {"type": "BIGINT"}, agg_function=function)]
    assert text in coordinator.refuses_table(39, table_document(columns, primary_key=["a"], properties=properties))


def test_a_good_aggregation_function_is_kept(coordinator: CoordinatorHarness) -> None:
    columns = [int_column("a"), column("v", {"type": "BIGINT"}, agg_function={"type": "SUM"})]
    properties = {"table.merge-engine": "aggregation"}
    coordinator.create_table("t", table_document(columns, primary_key=["a"], properties=properties))
    assert coordinator.table_node("t")["schema"]["columns"][1]["agg_function"] == {"type": "sum"}


AUTO = {"table.auto-partition.enabled": "true"}
TIME_FORMAT = "table.auto-partition.time-format"


@pytest.mark.parametrize(
    ("keys", "properties", "text"),
    [
        (["d", "r"], AUTO, "table.auto-partition.key"),
        (["d", "r"], AUTO | {"table.auto-partition.key": "x"}, "'x'"),
        (
            ["d", "r"],
            AUTO | {"table.auto-partition.key": "d", "table.auto-partition.num-precreate": "1"},
            "num-precreate",
        ),
        (["d"], AUTO | {TIME_FORMAT: "yyyy"}, "time-format"),
        (["d"], {TIME_FORMAT: "nonsense"}, "time-format"),
        (["date"], AUTO, "DATE"),
        (["date"], AUTO | {TIME_FORMAT: "yyyyMMdd"}, "DATE"),
        (["date"], AUTO | {TIME_FORMAT: "yyyy-MM-dd-HH", "table.auto-partition.time-unit": "HOUR"}, "DATE"),
    ],
)
def test_auto_partition(
    coordinator: CoordinatorHarness, keys: list[str], properties: dict[str, str], text: str
) -> None:
    columns = [text_column("d"), text_column("r"), column("date", {"type": "DATE"})]
    assert text in coordinator.refuses_table(15, table_document(columns, partition_key=keys, properties=properties))


def test_auto_partition_by_date(coordinator: CoordinatorHarness) -> None:
    properties = AUTO | {TIME_FORMAT: "yyyy-MM-dd", "table.auto-partition.time-zone": "UTC"}
    columns = [column("date", {"type": "DATE"})]
    coordinator.create_table("t", table_document(columns, partition_key=["date"], properties=properties))
    assert coordinator.partition_names("t") == ["2024-09-19", "2024-09-20"]


LAKE = {"table.datalake.enabled": "true"}
HISTORICAL = "table.datalake.historical-partition.enabled"


def test_lake_format_must_be_the_clusters(make_coordinator: Make) -> None:
    coordinator = make_coordinator(datalake_format="iceberg")
    coordinator.create_table("ok", table_document(properties=LAKE))
    document = table_document(properties=LAKE | {"table.datalake.format": "paimon"})
    assert "iceberg" in coordinator.refuses_table(39, document)
    other = make_coordinator(datalake_format="paimon")
    assert "set 'datalake.format' to 'iceberg'" in other.refuses_table(39, table_document(properties=LAKE))
    switched_off = make_coordinator(datalake_format="paimon", datalake_enabled=False)
    switched_off.refuses_table(15, table_document(properties=LAKE))
    switched_off.create_table("t")
    assert switched_off.table_node("t")["properties"]["table.datalake.format"] == "paimon"


@pytest.mark.parametrize(
    "data_type", [*({"type": name} for name in ("BOOLEAN", "TINYINT", "SMALLINT")), TIMESTAMP_LTZ], ids=str
)
@pytest.mark.parametrize("properties", [LAKE, {}], ids=["enabled", "recorded"])
def test_keys_that_could_never_be_written_with_the_lake_format(
    make_coordinator: Make, data_type: dict[str, Any], properties: dict[str, str]
) -> None:
    coordinator = make_coordinator(datalake_format="iceberg")
    columns = [column("k", data_type), int_column("a")]
    unwritable: list[dict[str, Any]] = [
        {"primary_key": ["k"]},
        {"bucket_key": ["k"]},
        {"primary_key": ["k", "a"], "bucket_key": ["k"]},
    ]
    for parts in unwritable:
        refused = coordinator.refuses_table(15, table_document(columns, properties=properties, **parts))
        assert "key k cannot be used with table.datalake.format=iceberg" in refused
    both = table_document(columns, properties=properties, primary_key=["k", "a"])
    assert "exactly one column, got 2" in coordinator.refuses_table(15, both)
    good = table_document(columns, properties=properties, primary_key=["k", "a"], bucket_key=["a"])
    coordinator.create_table("t", good)
    make_coordinator().create_table("t", table_document(columns, primary_key=["k"]))


def test_historical_partitions(make_coordinator: Make) -> None:
    coordinator = make_coordinator(datalake_format="paimon")
    columns = [int_column("a"), text_column("d"), text_column("e")]
    properties = LAKE | AUTO | {HISTORICAL: "true"}
    good = table_document(columns, primary_key=["a", "d"], partition_key=["d"], properties=properties)
    assert "set 'datalake.format' to 'iceberg'" in coordinator.refuses_table(39, good)  # every other rule is kept
    without_key = table_document(columns, partition_key=["d"], properties=properties)
    assert "primary key" in coordinator.refuses_table(39, without_key)
    no_auto = table_document(
        columns, primary_key=["a", "d"], partition_key=["d"], properties=LAKE | {HISTORICAL: "true"}
    )
    assert "auto-partition" in coordinator.refuses_table(39, no_auto)
    two_keys = table_document(
        columns,
        primary_key=["a", "d", "e"],
        partition_key=["d", "e"],
        properties=properties | {"table.auto-partition.key": "d"},
    )
    assert "exactly one" in coordinator.refuses_table(39, two_keys)
    iceberg = make_coordinator(datalake_format="iceberg")
    assert "paimon" in iceberg.refuses_table(39, good)
