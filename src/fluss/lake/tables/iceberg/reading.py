"""Planning the read of a snapshot, and reading its files.

Files are read here and not by pyiceberg's scan, which collects a whole file before its first batch, does not return
positions, and (0.12) returns a null list of rows as an empty one. Columns are found by their field ids, so renaming or
adding columns is safe; deletes come from pyiceberg.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.conversions import from_bytes
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import _read_all_delete_files
from pyiceberg.schema import Schema as IcebergSchema
from pyiceberg.table import FileScanTask, Table
from pyiceberg.types import LongType

from fluss.codec.filters.predicate import Predicate
from fluss.errors import ErrorCode, FlussError
from fluss.lake.tables.iceberg.catalog import catalog_errors
from fluss.lake.tables.iceberg.filters import to_expression
from fluss.lake.tables.iceberg.partitions import PartitionLayout
from fluss.lake.tables.iceberg.target import IcebergTarget
from fluss.lake.tables.iceberg.values import from_lake, table_schema
from fluss.lake.tables.interface.format import OFFSET_COLUMN, LakeFile
from fluss.model.schema import Schema

if TYPE_CHECKING:
    from fluss.codec.rows.varint import Int64s

POSITION_COLUMN = "__position"
READ_BATCH_ROWS = 1 << 16


def plan_files(
    table: Table,
    snapshot_id: int | None,
    schema: Schema | None,
    predicate: Predicate | None,
    buckets: Iterable[tuple[str | None, int]] | None,
) -> list[LakeFile]:
    """The files of a snapshot (the newest of this state if None), ordered by partition, bucket and offset."""
    if snapshot_id is not None and table.snapshot_by_id(snapshot_id) is None:
        raise FlussError(
            f"lake table {'.'.join(table.name())} has no snapshot {snapshot_id}: expired snapshots cannot "
            "be read; start the read again, or choose a newer one",
            ErrorCode.LAKE_SNAPSHOT_NOT_EXIST,
        )
    wanted = None if buckets is None else set(buckets)
    with catalog_errors(f"planning a read of lake table {'.'.join(table.name())}"):
        scan = table.scan(snapshot_id=snapshot_id)
        if schema is not None and predicate is not None:
            columns = {field.name for field in scan.projection().fields}
            scan = scan.filter(to_expression(predicate, schema, columns))
        layouts = {spec_id: PartitionLayout(spec, table.schema()) for spec_id, spec in table.metadata.specs().items()}
        offset_id = _offset_field_id(table.schema())
        files = [_lake_file(task, layouts[task.file.spec_id], offset_id) for task in scan.plan_files()]
    chosen = [each for each in files if wanted is None or (each.partition_name, each.bucket_id) in wanted]
    return sorted(chosen, key=_place)


def _place(file: LakeFile) -> tuple[str, int, int, str]:
    return file.partition_name or "", file.bucket_id or 0, file.first_offset or 0, file.path


def _offset_field_id(schema: IcebergSchema) -> int | None:
    return next((field.field_id for field in schema.fields if field.name == OFFSET_COLUMN), None)


def _lake_file(task: FileScanTask, layout: PartitionLayout, offset_id: int | None) -> LakeFile:
    name, bucket_id = layout.names(task.file.partition)
    return LakeFile(
        task.file.file_path,
        bucket_id,
        name,
        task.file.record_count,
        task.file.file_size_in_bytes,
        sum(file.record_count for file in task.delete_files),
        task,
        _bound(task.file.lower_bounds, offset_id),
        _bound(task.file.upper_bounds, offset_id),
        len(task.delete_files),
    )


def _bound(bounds: Mapping[int, bytes] | None, field_id: int | None) -> int | None:
    encoded = (bounds or {}).get(field_id if field_id is not None else -1)
    return None if encoded is None else int(from_bytes(LongType(), encoded))


def read_files(
    target: IcebergTarget, files: Iterable[LakeFile], schema: Schema, columns: Sequence[str] | None
) -> Iterator[pa.RecordBatch]:
    """Return the rows that are not deleted, batch by batch, one file after another."""
    wanted = table_schema(schema, columns)
    for file in files:
        yield from lake_rows(target, file, wanted)


def read_positions(
    target: IcebergTarget, file: LakeFile, schema: Schema, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Return columns of the rows that are not deleted, each with its position in the file, for position deletes."""
    wanted = table_schema(schema, columns)
    with_position = wanted.append(pa.field(POSITION_COLUMN, pa.int64(), False))
    for rows, positions in _rows(target, file, wanted):
        yield pa.RecordBatch.from_arrays([*rows.columns, pa.array(positions)], schema=with_position)


def lake_rows(target: IcebergTarget, file: LakeFile, wanted: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Return the rows of a file that are not deleted, with the columns and types of `wanted`."""
    for rows, _ in _rows(target, file, wanted):
        yield rows


def _rows(target: IcebergTarget, file: LakeFile, wanted: pa.Schema) -> Iterator[tuple[pa.RecordBatch, Int64s]]:
    """The rows of a file that are not deleted, and their positions in it."""
    io = target.open_io()
    with catalog_errors(f"reading {file.path} of the lake"):
        deleted = _deleted_positions(io, file)
        with io.new_input(file.path).open() as stream:
            parquet = pq.ParquetFile(stream)
            names = _names_in_file(parquet.schema_arrow, target.metadata.schema(), wanted.names)
            start = 0
            for batch in parquet.iter_batches(READ_BATCH_ROWS, columns=list(names)):
                end = start + batch.num_rows
                found = {names[name]: batch.column(index) for index, name in enumerate(batch.schema.names)}
                rows = from_lake(found, batch.num_rows, wanted)
                first, last = np.searchsorted(deleted, (start, end))
                positions = np.delete(np.arange(start, end, dtype=np.int64), deleted[first:last] - start)
                start = end
                if len(positions):
                    kept = rows if len(positions) == len(rows) else rows.take(pa.array(positions - (end - len(rows))))
                    yield kept, positions


def _names_in_file(in_file: pa.Schema, schema: IcebergSchema, names: Sequence[str]) -> dict[str, str]:
    """Map names in the file to names in the table, by field id; columns that the file lacks are left out.

    A file without ids (another program added it) is read by names.
    """
    by_id = {(field.metadata or {}).get(b"PARQUET:field_id"): field.name for field in in_file}
    if not any(by_id):
        return {name: name for name in in_file.names if name in names}
    found = {}
    for field in schema.fields:
        name = by_id.get(str(field.field_id).encode())
        if field.name in names and name is not None:
            found[name] = field.name
    return found


def _deleted_positions(io: FileIO, file: LakeFile) -> Int64s:
    """The deleted positions in order, without duplicates."""
    deletes = _read_all_delete_files(io, [file.handle]).get(file.path, [])
    parts = [each.to_numpy() for each in deletes]
    return np.unique(np.concatenate(parts)).astype(np.int64) if parts else np.empty(0, np.int64)
