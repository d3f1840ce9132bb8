"""Writing Arrow batches to Parquet files with field ids and statistics. Runs in any process; commits nothing.

Batches are combined into row groups, so memory holds one row group; a file that reaches the target size is closed and
the next one begins. A written file is described by a pyiceberg `DataFile`, which can be pickled.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionKey
from pyiceberg.table.locations import load_location_provider
from pyiceberg.typedef import Record

from fluss.codec.arrow.hidden_nulls import without_hidden_nulls
from fluss.errors import FlussError
from fluss.lake.tables.iceberg.catalog import catalog_errors
from fluss.lake.tables.iceberg.partitions import PartitionLayout
from fluss.lake.tables.iceberg.statistics import file_statistics
from fluss.lake.tables.iceberg.target import IcebergTarget
from fluss.lake.tables.iceberg.values import file_schema, to_lake
from fluss.lake.tables.iceberg.write_properties import parquet_options, target_file_bytes
from fluss.lake.tables.interface.format import CommitMessage, LakeFile, LakeSplit

logger = logging.getLogger(__name__)

ROW_GROUP_BYTES = 64 << 20
ROW_GROUP_ROWS = 1 << 20

# Ids that the Iceberg specification reserves for position-delete files.
DELETE_PATH_ID = 2147483546
DELETE_POSITION_ID = 2147483545
_DELETE_SCHEMA = pa.schema(
    [
        pa.field("file_path", pa.utf8(), False, {b"PARQUET:field_id": str(DELETE_PATH_ID).encode()}),
        pa.field("pos", pa.int64(), False, {b"PARQUET:field_id": str(DELETE_POSITION_ID).encode()}),
    ]
)


def write_split(
    target: IcebergTarget, split: LakeSplit, batches: Iterable[pa.RecordBatch], replaces: Sequence[LakeFile]
) -> CommitMessage:
    """Write the rows of a split to files of its bucket; without rows no file is written."""
    with catalog_errors(f"writing rows of bucket {split.bucket.bucket_id} to the lake"):
        files = _SplitFiles(target, split)
        try:
            for batch in batches:
                files.add(to_lake(batch, files.schema, split.bucket.bucket_id))
            written = files.finish()
        except BaseException:
            files.abandon()
            raise
    removed = tuple(file.handle.file for file in replaces)
    return CommitMessage(split, sum(each.record_count for each in written), tuple(written), removed)


class _SplitFiles:
    """Writes the files of one split, one after another, in one thread."""

    def __init__(self, target: IcebergTarget, split: LakeSplit) -> None:
        self._target = target
        self._metadata = target.metadata
        self._io = target.open_io()
        self._split = split
        self._partition = PartitionLayout(self._metadata.spec(), self._metadata.schema()).record(
            split.partition_name, split.bucket.bucket_id
        )
        self.schema = file_schema(self._metadata.schema())
        self._target_bytes = target_file_bytes(self._metadata.properties)
        self._pending: list[pa.RecordBatch] = []
        self._pending_bytes = self._pending_rows = 0
        self._open: _OpenFile | None = None
        self._begun: list[str] = []
        self._written: list[DataFile] = []

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows; writes when a row group is full."""
        if not batch.num_rows:
            return
        self._pending.append(_without_hidden_nulls(batch))
        self._pending_bytes += batch.nbytes
        self._pending_rows += batch.num_rows
        if self._pending_bytes >= ROW_GROUP_BYTES or self._pending_rows >= ROW_GROUP_ROWS:
            self._write_row_group()

    def finish(self) -> list[DataFile]:
        """Write pending rows and close; return all files of the split."""
        self._write_row_group()
        self._close_file()
        return self._written

    def abandon(self) -> None:
        """Close without a result, and remove the written files, which will not be committed."""
        if self._open is not None:
            self._open.abandon()
        _remove(self._target, self._begun)

    def _write_row_group(self) -> None:
        if not self._pending:
            return
        if self._open is None:
            self._begun.append(_new_path(self._target, self._split, self._partition, ""))
            self._open = _OpenFile(self._target, self._begun[-1], self.schema)
        self._open.writer.write_table(pa.Table.from_batches(self._pending, self.schema), ROW_GROUP_ROWS)
        self._pending = []
        self._pending_bytes = self._pending_rows = 0
        if self._open.stream.tell() >= self._target_bytes:
            self._close_file()

    def _close_file(self) -> None:
        if self._open is None:
            return
        facts = file_statistics(self._open.close(), self._metadata)
        self._written.append(_data_file(self._target, self._open.path, self._partition, DataFileContent.DATA, facts))
        self._open = None


def _without_hidden_nulls(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Convert nested columns to the form that Parquet needs, whether from a key-value batch or a file of the lake."""
    if not any(pa.types.is_nested(field.type) for field in batch.schema):
        return batch
    return pa.RecordBatch.from_arrays([without_hidden_nulls(column) for column in batch.columns], schema=batch.schema)


class _OpenFile:
    """A Parquet file that is being written."""

    def __init__(self, target: IcebergTarget, path: str, schema: pa.Schema) -> None:
        self.path = path
        options = parquet_options(target.metadata.properties)
        self.stream: Any = target.open_io().new_output(path).create()
        self._metadata: list[pq.FileMetaData] = []
        try:
            self.writer = pq.ParquetWriter(
                self.stream, schema, store_schema=False, metadata_collector=self._metadata, **options
            )
        except BaseException:
            self.stream.close()
            raise

    def close(self) -> pq.FileMetaData:
        """The footer of the finished file."""
        self.writer.close()
        self.stream.close()
        return self._metadata[0]

    def abandon(self) -> None:
        """Close the open writer. Errors here are only logged, because the error of the write is the one to report."""
        for each in (self.writer, self.stream):
            try:
                each.close()
            except Exception as error:  # of the file system behind it
                logger.info("%s was abandoned and could not be closed: %s", self.path, error)


def _remove(target: IcebergTarget, paths: Iterable[str]) -> None:
    """Remove as many of the files as possible; the search for orphans finds the rest."""
    io = target.open_io()
    for path in paths:
        try:
            io.delete(path)
        except FileNotFoundError:
            continue  # it was never created in the file system
        except Exception as error:  # of the file system behind it
            logger.warning("%s was abandoned and could not be removed: %s", path, error)


class _DirectoryName:
    """The directory of a partition; has the only method of `PartitionKey` that location providers use."""

    def __init__(self, target: IcebergTarget, partition: Record) -> None:
        self._path = target.metadata.spec().partition_to_path(partition, target.metadata.schema())

    def to_path(self) -> str:
        return self._path


def _new_path(target: IcebergTarget, split: LakeSplit, partition: Record, suffix: str) -> str:
    """A path with bucket and range first, for readers of the directory; the rest makes it unique."""
    start = split.end_offset if split.start_offset is None else split.start_offset
    name = f"{split.bucket.bucket_id:05d}-{start}-{split.end_offset}-{uuid.uuid4()}{suffix}.parquet"
    provider = load_location_provider(target.metadata.location, target.metadata.properties)
    return provider.new_data_location(name, cast(PartitionKey, _DirectoryName(target, partition)))


def _data_file(
    target: IcebergTarget, path: str, partition: Record, content: DataFileContent, facts: Mapping[str, Any]
) -> DataFile:
    data_file = DataFile.from_args(
        content=content,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=partition,
        file_size_in_bytes=len(target.open_io().new_input(path)),
        sort_order_id=None,
        equality_ids=None,
        key_metadata=None,
        **facts,
    )
    data_file.spec_id = target.metadata.default_spec_id
    return data_file


def delete_rows(target: IcebergTarget, message: CommitMessage, positions: Mapping[LakeFile, pa.Array]) -> CommitMessage:
    """Write one delete file per data file, so that readers of a data file read no other deletes."""
    written = list(message.position_deletes)
    begun: list[str] = []
    with catalog_errors(f"writing deletes of bucket {message.split.bucket.bucket_id} to the lake"):
        try:
            for file, rows in positions.items():
                if file.handle.file in message.removed:
                    raise FlussError(f"rows of {file.path} cannot be deleted: the same round replaces the whole file")
                if len(rows):
                    begun.append(_new_path(target, message.split, file.handle.file.partition, "-deletes"))
                    written.append(_write_deletes(target, begun[-1], file.handle.file, rows))
        except BaseException:
            _remove(target, begun)
            raise
    return replace(message, position_deletes=tuple(written))


def _write_deletes(target: IcebergTarget, path: str, data_file: DataFile, rows: pa.Array) -> DataFile:
    ordered = pc.unique(pa.array(rows, pa.int64())).sort()
    if ordered[0].as_py() < 0 or ordered[-1].as_py() >= data_file.record_count:
        raise FlussError(
            f"positions in {data_file.file_path} must be from 0 to {data_file.record_count - 1}, got {ordered[0]} to "
            f"{ordered[-1]}"
        )
    paths = pa.repeat(pa.scalar(data_file.file_path), len(ordered))
    with target.open_io().new_output(path).create() as stream:
        pq.write_table(
            pa.Table.from_arrays([paths, ordered], schema=_DELETE_SCHEMA),
            stream,
            compression="zstd",
            store_schema=False,
        )
    bound = data_file.file_path.encode()
    # Whole paths as bounds, not truncated ones: equal bounds show that the deletes are for this file alone.
    facts = {
        "record_count": len(ordered),
        "lower_bounds": {DELETE_PATH_ID: bound},
        "upper_bounds": {DELETE_PATH_ID: bound},
    }
    return _data_file(target, path, data_file.partition, DataFileContent.POSITION_DELETES, facts)
