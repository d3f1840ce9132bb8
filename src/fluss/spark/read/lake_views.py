"""`table$lake$snapshots` and `table$lake$files`: the snapshots and files of a lake table, for its operators.

The driver reads them from the lake when the read is planned; the rows travel with the only task.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from fluss.lake.reading.lake_access import load_lake_table
from fluss.lake.tables.interface.format import COMMIT_USER, COMMIT_USER_PROPERTY, LakeTable
from fluss.spark.convert.arrow import spark_arrow_schema
from fluss.spark.convert.lake_views import VIEW_SCHEMAS
from fluss.spark.sessions.connection_cache import OpenTable


@dataclass(frozen=True, eq=False)
class ViewSplit(InputPartition):
    """All rows of a view."""

    batch: pa.RecordBatch


def view_split(opened: OpenTable, view: str, snapshot_id: int | None) -> ViewSplit:
    """Return the current rows of a view; with `snapshot_id`, the files are those of that snapshot."""
    table = load_lake_table(opened.access)
    rows = _snapshots(table) if view == "snapshots" else _files(table, snapshot_id)
    return ViewSplit(pa.RecordBatch.from_pylist(rows, spark_arrow_schema(VIEW_SCHEMAS[view])))


def _snapshots(table: LakeTable) -> list[dict[str, Any]]:
    """The snapshots, newest first."""
    return [
        {
            "snapshot_id": entry.snapshot_id,
            "committed_at": _microseconds(entry.timestamp_ms),
            "superseded_at": _microseconds(entry.superseded_ms),
            "is_tiered": entry.properties.get(COMMIT_USER_PROPERTY) == COMMIT_USER,
            "properties": sorted(entry.properties.items()),
        }
        for entry in table.history()
    ]


def _files(table: LakeTable, snapshot_id: int | None) -> list[dict[str, object]]:
    return [
        {
            "path": file.path,
            "partition": file.partition_name,
            "bucket": file.bucket_id,
            "rows": file.row_count - file.deleted_rows,
            "deleted_rows": file.deleted_rows,
            "delete_files": file.delete_file_count,
            "size_bytes": file.size_bytes,
            "first_offset": file.first_offset,
            "last_offset": file.last_offset,
        }
        for file in table.plan_files(snapshot_id)
    ]


def _microseconds(timestamp_ms: int | None) -> int | None:
    return None if timestamp_ms is None else timestamp_ms * 1000
