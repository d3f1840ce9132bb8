"""The table of `table.*` properties."""

from __future__ import annotations

from typing import Any

import pytest

from fluss.model.properties import ALTERABLE_TABLE_PROPERTIES, TABLE_PROPERTIES, property_value

DAY_MS = 86_400_000


@pytest.mark.parametrize(
    ("key", "default", "text", "value", "bad"),
    [
        ("table.replication.factor", None, "3", 3, "x"),
        ("table.log.format", "ARROW", "indexed", "INDEXED", "CSV"),
        ("table.log.arrow.compression.type", "ZSTD", "lz4_frame", "LZ4_FRAME", "snappy"),
        ("table.log.arrow.compression.zstd.level", 1, "22", 22, "high"),
        ("table.kv.format", "COMPACTED", "Indexed", "INDEXED", "ARROW"),
        ("table.kv.format-version", None, "1", 1, "v1"),
        ("table.kv.standby-replica.enabled", None, "True", True, "1"),
        ("table.auto-partition.enabled", False, "TRUE", True, "on"),
        ("table.auto-partition.time-unit", "DAY", "hour", "HOUR", "WEEK"),
        ("table.auto-partition.num-precreate", 2, "0", 0, "many"),
        ("table.auto-partition.num-retention", 7, "-1", -1, ""),
        ("table.log.ttl", 7 * DAY_MS, "0ms", 0, "7"),
        ("table.log.tiered.local-segments", 2, "5", 5, "5.0"),
        ("table.log.local-ttl", None, "2 h", 7_200_000, "soon"),
        ("table.datalake.enabled", False, "false", False, "no"),
        ("table.datalake.format", None, "PAIMON", "paimon", "delta"),
        ("table.datalake.freshness", 180_000, "5 min", 300_000, "5"),
        ("table.datalake.auto-compaction", True, "false", False, "?"),
        ("table.datalake.auto-expire-snapshot", True, "false", False, "?"),
        ("table.datalake.historical-partition.enabled", False, "true", True, "?"),
        ("table.merge-engine", None, "FIRST_ROW", "first_row", "last_row"),
        ("table.delete.behavior", "ALLOW", "disable", "DISABLE", "maybe"),
        ("table.auto-increment.cache-size", 100_000, "7", 7, "7k"),
        ("table.changelog.image", "FULL", "wal", "WAL", "HALF"),
    ],
)
def test_values(key: str, default: Any, text: str, value: Any, bad: str) -> None:
    assert property_value({}, key) == default
    assert property_value({key: text}, key) == value
    with pytest.raises(ValueError, match=key):
        property_value({key: bad}, key)


@pytest.mark.parametrize(
    "key",
    [
        "table.auto-partition.key",
        "table.auto-partition.time-format",
        "table.auto-partition.time-zone",
        "table.merge-engine.versioned.ver-column",
        "table.statistics.columns",
    ],
)
def test_free_texts(key: str) -> None:
    assert property_value({}, key) is None
    assert property_value({key: "Any Text"}, key) == "Any Text"


def test_the_list_is_complete() -> None:
    assert len(TABLE_PROPERTIES) == 29
    assert {
        "table.kv.standby-replica.enabled",
        "table.auto-partition.enabled",
        "table.auto-partition.num-precreate",
        "table.auto-partition.num-retention",
        "table.log.ttl",
        "table.log.tiered.local-segments",
        "table.log.local-ttl",
        "table.datalake.enabled",
        "table.datalake.freshness",
        "table.datalake.auto-compaction",
        "table.datalake.historical-partition.enabled",
        "table.statistics.columns",
    } == ALTERABLE_TABLE_PROPERTIES
