"""Parses and checks the auto-partition properties of a table."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import tzinfo

from fluss.errors import ErrorCode, FlussError
from fluss.model import properties as keys
from fluss.model.descriptor import TableDescriptor
from fluss.server.coordinator.tables.partition_time import (
    DATE_PATTERN,
    TimePattern,
    moment_at,
    parse_pattern,
    parse_zone,
)
from fluss.server.coordinator.tables.table_defaults import invalid_config, typed


@dataclass(frozen=True)
class AutoPartition:
    """The auto-partition settings of a table. `key_position` is the index of the time value in the partition values."""

    enabled: bool
    key_position: int
    unit: str
    pattern: TimePattern
    zone: tzinfo | None
    num_precreate: int
    num_retention: int

    def value_at(self, now_ms: int, units_later: int) -> str:
        """Return the time value `units_later` units after now."""
        return self.pattern.format(moment_at(now_ms, self.zone, self.unit, units_later))

    def oldest_retained(self, now_ms: int) -> str | None:
        """Return the oldest value that has not expired (values sort by time); None if values never expire."""
        if self.num_retention < 0:
            return None
        try:
            return self.value_at(now_ms, -self.num_retention)
        except OverflowError:
            return None


def read_auto_partition(descriptor: TableDescriptor) -> AutoPartition:
    """Return the auto-partition settings of a partitioned table that passed `check_auto_partition`."""
    properties = descriptor.properties
    unit = typed(properties, keys.AUTO_PARTITION_TIME_UNIT)
    key = properties.get(keys.AUTO_PARTITION_KEY, descriptor.partition_keys[0])
    position = descriptor.partition_keys.index(key) if key in descriptor.partition_keys else 0
    return AutoPartition(
        enabled=typed(properties, keys.AUTO_PARTITION_ENABLED),
        key_position=position,
        unit=unit,
        pattern=parse_pattern(unit, properties.get(keys.AUTO_PARTITION_TIME_FORMAT)),
        zone=parse_zone(properties.get(keys.AUTO_PARTITION_TIME_ZONE)),
        num_precreate=typed(properties, keys.AUTO_PARTITION_NUM_PRECREATE),
        num_retention=typed(properties, keys.AUTO_PARTITION_NUM_RETENTION),
    )


def check_auto_partition(descriptor: TableDescriptor) -> None:
    """Raise code 39 or 15 for auto-partition properties that are invalid or do not match the table."""
    properties = descriptor.properties
    enabled = typed(properties, keys.AUTO_PARTITION_ENABLED)
    if enabled and not descriptor.is_partitioned:
        raise invalid_config(f"{keys.AUTO_PARTITION_ENABLED}=true requires a partitioned table; add a partition key")
    unit = typed(properties, keys.AUTO_PARTITION_TIME_UNIT)
    pattern_text = properties.get(keys.AUTO_PARTITION_TIME_FORMAT)
    try:
        parse_pattern(unit, pattern_text)
    except ValueError as error:
        raise _invalid_table(f"{keys.AUTO_PARTITION_TIME_FORMAT}: {error}") from None
    try:
        parse_zone(properties.get(keys.AUTO_PARTITION_TIME_ZONE))
    except ValueError as error:
        raise invalid_config(f"{keys.AUTO_PARTITION_TIME_ZONE}: {error}") from None
    if not enabled:
        return
    key = _checked_key(descriptor)
    schema = descriptor.schema
    if schema.columns[schema.position(key)].data_type.root == "DATE" and (unit, pattern_text) != ("DAY", DATE_PATTERN):
        raise _invalid_table(
            f"auto-partition key {key!r} is a DATE, which requires {keys.AUTO_PARTITION_TIME_UNIT}=DAY and "
            f"{keys.AUTO_PARTITION_TIME_FORMAT}={DATE_PATTERN}"
        )


def _checked_key(descriptor: TableDescriptor) -> str:
    partition_keys, properties = descriptor.partition_keys, descriptor.properties
    key = properties.get(keys.AUTO_PARTITION_KEY)
    if len(partition_keys) == 1:
        return partition_keys[0]
    listed = ", ".join(partition_keys)
    if key is None:
        raise _invalid_table(
            f"{keys.AUTO_PARTITION_KEY} must name the time key if there are several partition keys ({listed})"
        )
    if key not in partition_keys:
        raise _invalid_table(f"{keys.AUTO_PARTITION_KEY} must be one of the partition keys ({listed}), got {key!r}")
    if typed(properties, keys.AUTO_PARTITION_NUM_PRECREATE) > 0:
        raise _invalid_table(
            f"{keys.AUTO_PARTITION_NUM_PRECREATE} must be 0 if there are several partition keys ({listed}), because "
            "the values of the other keys are not known in advance"
        )
    return key


def _invalid_table(message: str) -> FlussError:
    return FlussError(message, ErrorCode.INVALID_TABLE_EXCEPTION)
