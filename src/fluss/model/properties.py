"""The `table.*` properties: their keys, value types and defaults, and which of them may be altered.

`properties` of a table descriptor is a map of strings. This module knows how to read each value; which combinations are
allowed is decided by the coordinator, because that depends on the schema and on the server's configuration.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fluss.model.option_values import (
    enum_parser,
    parse_boolean,
    parse_duration_ms,
    parse_int,
    parse_long,
    parse_text,
)

TABLE_PROPERTY_PREFIX = "table."
DATALAKE_PROPERTY_PREFIX = "table.datalake."

REPLICATION_FACTOR = "table.replication.factor"
LOG_FORMAT = "table.log.format"
COMPRESSION_TYPE = "table.log.arrow.compression.type"
COMPRESSION_ZSTD_LEVEL = "table.log.arrow.compression.zstd.level"
KV_FORMAT = "table.kv.format"
KV_FORMAT_VERSION = "table.kv.format-version"
KV_STANDBY_REPLICA = "table.kv.standby-replica.enabled"
AUTO_PARTITION_ENABLED = "table.auto-partition.enabled"
AUTO_PARTITION_KEY = "table.auto-partition.key"
AUTO_PARTITION_TIME_UNIT = "table.auto-partition.time-unit"
AUTO_PARTITION_TIME_FORMAT = "table.auto-partition.time-format"
AUTO_PARTITION_TIME_ZONE = "table.auto-partition.time-zone"
AUTO_PARTITION_NUM_PRECREATE = "table.auto-partition.num-precreate"
AUTO_PARTITION_NUM_RETENTION = "table.auto-partition.num-retention"
LOG_TTL = "table.log.ttl"
LOG_TIERED_LOCAL_SEGMENTS = "table.log.tiered.local-segments"
LOG_LOCAL_TTL = "table.log.local-ttl"
DATALAKE_ENABLED = "table.datalake.enabled"
DATALAKE_FORMAT = "table.datalake.format"
DATALAKE_FRESHNESS = "table.datalake.freshness"
DATALAKE_AUTO_COMPACTION = "table.datalake.auto-compaction"
DATALAKE_AUTO_EXPIRE_SNAPSHOT = "table.datalake.auto-expire-snapshot"
DATALAKE_HISTORICAL_PARTITION = "table.datalake.historical-partition.enabled"
MERGE_ENGINE = "table.merge-engine"
MERGE_ENGINE_VERSION_COLUMN = "table.merge-engine.versioned.ver-column"
DELETE_BEHAVIOR = "table.delete.behavior"
AUTO_INCREMENT_CACHE_SIZE = "table.auto-increment.cache-size"
CHANGELOG_IMAGE = "table.changelog.image"
STATISTICS_COLUMNS = "table.statistics.columns"

# The default level. Apache Fluss's own clients use 3, which takes half as long again and saves about
# two percent of typical rows (docs/writing.md); to readers the level makes no difference.
DEFAULT_ZSTD_LEVEL = 1

LAKE_FORMATS = ("paimon", "iceberg", "hudi", "lance")
TIME_UNITS = ("HOUR", "DAY", "MONTH", "QUARTER", "YEAR")
MILLISECONDS_PER_DAY = 86_400_000


@dataclass(frozen=True)
class TableProperty:
    """How one property is parsed, and its default. None as a default means that the code which reads it decides."""

    key: str
    parse: Callable[[str], Any]
    default: Any = None
    alterable: bool = False


TABLE_PROPERTIES: Mapping[str, TableProperty] = {
    definition.key: definition
    for definition in (
        TableProperty(REPLICATION_FACTOR, parse_int),
        TableProperty(LOG_FORMAT, enum_parser(("ARROW", "INDEXED", "COMPACTED")), "ARROW"),
        TableProperty(COMPRESSION_TYPE, enum_parser(("NONE", "LZ4_FRAME", "ZSTD")), "ZSTD"),
        TableProperty(COMPRESSION_ZSTD_LEVEL, parse_int, DEFAULT_ZSTD_LEVEL),
        TableProperty(KV_FORMAT, enum_parser(("COMPACTED", "INDEXED")), "COMPACTED"),
        TableProperty(KV_FORMAT_VERSION, parse_int),
        TableProperty(KV_STANDBY_REPLICA, parse_boolean, alterable=True),
        TableProperty(AUTO_PARTITION_ENABLED, parse_boolean, False, alterable=True),
        TableProperty(AUTO_PARTITION_KEY, parse_text),
        TableProperty(AUTO_PARTITION_TIME_UNIT, enum_parser(TIME_UNITS), "DAY"),
        TableProperty(AUTO_PARTITION_TIME_FORMAT, parse_text),
        TableProperty(AUTO_PARTITION_TIME_ZONE, parse_text),
        TableProperty(AUTO_PARTITION_NUM_PRECREATE, parse_int, 2, alterable=True),
        TableProperty(AUTO_PARTITION_NUM_RETENTION, parse_int, 7, alterable=True),
        TableProperty(LOG_TTL, parse_duration_ms, 7 * MILLISECONDS_PER_DAY, alterable=True),
        TableProperty(LOG_TIERED_LOCAL_SEGMENTS, parse_int, 2, alterable=True),
        TableProperty(LOG_LOCAL_TTL, parse_duration_ms, alterable=True),
        TableProperty(DATALAKE_ENABLED, parse_boolean, False, alterable=True),
        TableProperty(DATALAKE_FORMAT, enum_parser(LAKE_FORMATS)),
        TableProperty(DATALAKE_FRESHNESS, parse_duration_ms, 180_000, alterable=True),
        # Compaction and expiry of snapshots are on by default; in Apache Fluss both are off.
        TableProperty(DATALAKE_AUTO_COMPACTION, parse_boolean, True, alterable=True),
        TableProperty(DATALAKE_AUTO_EXPIRE_SNAPSHOT, parse_boolean, True),
        TableProperty(DATALAKE_HISTORICAL_PARTITION, parse_boolean, False, alterable=True),
        TableProperty(MERGE_ENGINE, enum_parser(("first_row", "versioned", "aggregation"))),
        TableProperty(MERGE_ENGINE_VERSION_COLUMN, parse_text),
        TableProperty(DELETE_BEHAVIOR, enum_parser(("ALLOW", "IGNORE", "DISABLE")), "ALLOW"),
        TableProperty(AUTO_INCREMENT_CACHE_SIZE, parse_long, 100_000),
        TableProperty(CHANGELOG_IMAGE, enum_parser(("FULL", "WAL")), "FULL"),
        TableProperty(STATISTICS_COLUMNS, parse_text, alterable=True),
    )
}

ALTERABLE_TABLE_PROPERTIES: frozenset[str] = frozenset(
    key for key, definition in TABLE_PROPERTIES.items() if definition.alterable
)


def property_value(properties: Mapping[str, str], key: str) -> Any:
    """The parsed value of a known property, or its default; the ValueError of a wrong value names key and reason.

    >>> property_value({"table.log.ttl": "1 h"}, "table.log.ttl")
    3600000
    """
    definition = TABLE_PROPERTIES[key]
    text = properties.get(key)
    if text is None:
        return definition.default
    try:
        return definition.parse(text)
    except ValueError as error:
        raise ValueError(f"property {key!r}: {error}") from None
