"""Lake tables for tests: real catalogs on real files, filled the way a tiering service fills them."""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from fluss.codec.arrow.types import to_arrow_schema
from fluss.lake.tables.iceberg.table import IcebergTable
from fluss.lake.tables.iceberg.tables import IcebergFormat
from fluss.lake.tables.interface.format import CommitMessage, LakeFile, LakeSplit, LakeTableSpec
from fluss.lake.tables.open_lake import open_lake
from fluss.model.descriptor import TableDescriptor
from fluss.model.paths import TableBucket, TablePath
from fluss.model.schema import Column, Schema
from fluss.model.types import BigIntType, DataType, IntType, StringType

TABLE_ID = 41
COMMITTED = dt.datetime(2026, 8, 1, 12, 0, tzinfo=dt.UTC)
_names = itertools.count()


def local_lake(directory: Path) -> IcebergFormat:
    """The lake of a server with this data directory and no other configuration."""
    lake = open_lake("iceberg", {}, directory)
    assert isinstance(lake, IcebergFormat)
    return lake


def schema_of(columns: Mapping[str, DataType], primary_key: Sequence[str] = ()) -> Schema:
    """A numbered schema; key columns are NOT NULL."""
    made = [Column(name, kind.not_null() if name in primary_key else kind) for name, kind in columns.items()]
    return Schema(tuple(made), tuple(primary_key)).numbered()


PEOPLE = {"id": BigIntType(), "name": StringType(), "age": IntType()}


def spec_of(
    columns: Mapping[str, DataType],
    primary_key: Sequence[str] = (),
    partition_keys: Sequence[str] = (),
    bucket_keys: Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
) -> LakeTableSpec:
    """A table with four buckets and a name of its own."""
    descriptor = TableDescriptor(
        schema_of(columns, primary_key),
        partition_keys=tuple(partition_keys),
        bucket_keys=tuple(bucket_keys) or tuple(key for key in primary_key if key not in partition_keys),
        bucket_count=4,
        properties={"table.datalake.format": "iceberg"},
        custom_properties=dict(properties or {}),
    )
    return LakeTableSpec(TablePath("db", f"t{next(_names)}"), descriptor)


class LakeTableWriter:
    """Writes ranges of buckets of one table and commits them, without a log behind it."""

    def __init__(self, lake: IcebergFormat, spec: LakeTableSpec) -> None:
        self.lake, self.spec = lake, spec
        self.table: IcebergTable = lake.load(spec.path)

    @property
    def schema(self) -> Schema:
        return self.spec.descriptor.schema

    def batch(self, rows: Sequence[Mapping[str, Any]], start: int, schema: Schema | None = None) -> pa.RecordBatch:
        """Rows with offsets from `start` on."""
        arrow = to_arrow_schema(schema or self.schema)
        columns = [pa.array([row.get(field.name) for row in rows], field.type) for field in arrow]
        offsets = pa.array(range(start, start + len(rows)), pa.int64())
        times = pa.array([COMMITTED] * len(rows), pa.timestamp("ms", "UTC"))
        return pa.RecordBatch.from_arrays([*columns, offsets, times], [*arrow.names, "__offset", "__timestamp"])

    def write(
        self,
        rows: Sequence[Mapping[str, Any]],
        start: int = 0,
        bucket: int = 0,
        partition: tuple[int, str] | None = None,
        replaces: Sequence[LakeFile] = (),
    ) -> CommitMessage:
        """What a task does for one split."""
        partition_id, name = partition or (None, None)
        split = LakeSplit(TableBucket(TABLE_ID, partition_id, bucket), name, start, start + len(rows))
        return self.table.target().write_split(split, [self.batch(rows, start)], replaces)

    def commit(self, *messages: CommitMessage) -> int:
        return self.table.commit(TABLE_ID, messages)

    def rows(
        self, files: Sequence[LakeFile] | None = None, columns: Sequence[str] | None = None
    ) -> list[dict[str, Any]]:
        """All rows of the newest snapshot, or of these files."""
        planned = self.table.plan_files() if files is None else files
        batches = list(self.table.target().read_files(planned, self.schema, columns))
        return [row for batch in batches for row in batch.to_pylist()]


def made(lake: IcebergFormat, spec: LakeTableSpec) -> LakeTableWriter:
    """The lake table of `spec`, made and loaded."""
    lake.create_table(spec)
    return LakeTableWriter(lake, spec)


def people(first: int, count: int, **more: Any) -> list[dict[str, Any]]:
    """Rows of `PEOPLE`."""
    return [{"id": each, "name": f"n{each}", "age": each % 90, **more} for each in range(first, first + count)]
