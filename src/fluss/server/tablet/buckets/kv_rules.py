"""The properties of a primary-key table that determine how puts are merged and stored: formats, merge engine, deletes.

They are derived from the table's entry in the catalog, and kept until the entry changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from fluss.codec.arrow.compression import Compression
from fluss.codec.keys.encoding import KeyPlan, key_plan
from fluss.codec.rows.columns import RowFormat
from fluss.model.properties import (
    AUTO_INCREMENT_CACHE_SIZE,
    CHANGELOG_IMAGE,
    COMPRESSION_TYPE,
    COMPRESSION_ZSTD_LEVEL,
    DATALAKE_FORMAT,
    DELETE_BEHAVIOR,
    KV_FORMAT,
    KV_FORMAT_VERSION,
    LOG_FORMAT,
    MERGE_ENGINE,
    MERGE_ENGINE_VERSION_COLUMN,
)
from fluss.server.catalog import TableEntry
from fluss.server.storage.kv.table_format import KvTableFormat

FULL_IMAGE = "FULL"


@dataclass(frozen=True, eq=False)
class KvRules:
    """The rules of one table in one state of the catalog."""

    entry: TableEntry

    @cached_property
    def key_plan(self) -> KeyPlan:
        """The columns and encodings of the table's keys."""
        descriptor = self.entry.descriptor
        return key_plan(
            descriptor.schema.primary_key,
            descriptor.partition_keys,
            descriptor.bucket_keys,
            self.entry.property(DATALAKE_FORMAT),
            self.entry.property(KV_FORMAT_VERSION) or 1,
        )

    @cached_property
    def format(self) -> KvTableFormat:
        """The formats in which the table's rows are stored."""
        entry = self.entry
        return KvTableFormat(
            schemas=entry.schemas,
            schema_id=entry.schema_id,
            row_format=RowFormat(entry.property(KV_FORMAT)),
            log_format=entry.property(LOG_FORMAT),
            compression=Compression.parse(entry.property(COMPRESSION_TYPE), entry.property(COMPRESSION_ZSTD_LEVEL)),
            key_columns=self.key_plan.primary_columns,
            key_encoding=self.key_plan.primary_encoding,
            counts_rows=self.has_full_image,
        )

    @cached_property
    def has_full_image(self) -> bool:
        """True if the changelog has both the row before and the row after an update."""
        return bool(self.entry.property(CHANGELOG_IMAGE) == FULL_IMAGE)

    @cached_property
    def merge_engine(self) -> str | None:
        """The merge engine: `first_row`, `versioned` or `aggregation`; None if the last write wins."""
        engine = self.entry.property(MERGE_ENGINE)
        return None if engine is None else str(engine).lower()

    @cached_property
    def delete_behavior(self) -> str:
        """How deletes are handled: `ALLOW`, `IGNORE` or `DISABLE`."""
        return str(self.entry.property(DELETE_BEHAVIOR)).upper()

    @cached_property
    def version_position(self) -> int:
        """The position of the version column of the versioned engine."""
        return self.entry.schema.position(str(self.entry.property(MERGE_ENGINE_VERSION_COLUMN)))

    @cached_property
    def key_positions(self) -> frozenset[int]:
        """The positions of the primary key's columns, partition columns included."""
        schema = self.entry.schema
        return frozenset(schema.position(name) for name in schema.primary_key)

    @cached_property
    def auto_increment_position(self) -> int | None:
        """The position of the auto-increment column; None if there is none."""
        name = self.entry.schema.auto_increment_column
        return None if name is None else self.entry.schema.position(name)

    @cached_property
    def takes_whole_rows(self) -> bool:
        """True if rows are stored as they are sent, unless a request names columns."""
        return self.merge_engine is None and self.auto_increment_position is None

    @property
    def auto_increment_block(self) -> int:
        """The number of auto-increment values that a bucket reserves at a time."""
        return int(self.entry.property(AUTO_INCREMENT_CACHE_SIZE))

    @cached_property
    def needs_api_version_1(self) -> bool:
        """True if clients of API version 0 would encode the table's keys differently."""
        plan = self.key_plan
        return (
            plan.bucketing is not None
            and (self.entry.property(KV_FORMAT_VERSION) or 1) >= 2
            and plan.bucket_columns != plan.primary_columns
        )


def rules_of(entry: TableEntry) -> KvRules:
    """Return the rules of a primary-key table. They are cached in its entry, so they go when the table is dropped."""
    rules: KvRules | None = entry.derived.get(KvRules)
    if rules is None:
        rules = entry.derived[KvRules] = KvRules(entry)
    return rules
