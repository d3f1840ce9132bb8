"""The part of a table that tasks get: its metadata without the history, and access to its files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import pyarrow as pa
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil

from fluss.lake.tables.iceberg.catalog import catalog_errors
from fluss.lake.tables.interface.format import CommitMessage, LakeFile, LakeSplit
from fluss.lazy_imports import import_lock
from fluss.model.schema import Schema

# The tasks of one process work on few tables at a time.
PARSED_TABLES_LIMIT = 16


@lru_cache(maxsize=PARSED_TABLES_LIMIT)
def _parsed(metadata_json: str) -> TableMetadata:
    return TableMetadataUtil.parse_raw(metadata_json)


@dataclass(frozen=True)
class IcebergTarget:
    """Writes, reads and removes files in any process. Can be pickled; the properties may have object store keys."""

    metadata_json: str = field(repr=False)
    io_properties: Mapping[str, str] = field(repr=False)

    @classmethod
    def of(cls, table: Table) -> IcebergTarget:
        """The target of a table, without snapshots and logs, which make the metadata of an old table large."""
        without_history = table.metadata.model_copy(
            update={
                "snapshots": [],
                "snapshot_log": [],
                "metadata_log": [],
                "refs": {},
                "current_snapshot_id": None,
                "statistics": [],
                "partition_statistics": [],
            }
        )
        return cls(without_history.model_dump_json(), dict(table.io.properties))

    @property
    def metadata(self) -> TableMetadata:
        """The table's schema, partition spec, properties and location."""
        return _parsed(self.metadata_json)

    def open_io(self) -> FileIO:
        """Open the file system or object store of the table."""
        return load_file_io(dict(self.io_properties), self.metadata.location)

    def write_split(
        self, split: LakeSplit, batches: Iterable[pa.RecordBatch], replaces: Sequence[LakeFile] = ()
    ) -> CommitMessage:
        """Write rows with `__offset` and `__timestamp` to new files, which replace the files in `replaces`."""
        with import_lock:
            from fluss.lake.tables.iceberg.writing import write_split

        return write_split(self, split, batches, replaces)

    def delete_rows(self, message: CommitMessage, positions: Mapping[LakeFile, pa.Array]) -> CommitMessage:
        """Return `message` with position deletes for rows of files that stay."""
        with import_lock:
            from fluss.lake.tables.iceberg.writing import delete_rows

        return delete_rows(self, message, positions)

    def discard(self, messages: Iterable[CommitMessage]) -> None:
        """Remove the files of messages that will not be committed. Not after a commit with an unknown result."""
        io = self.open_io()
        for message in messages:
            for data_file in (*message.added, *message.position_deletes):
                io.delete(data_file.file_path)

    def remove_files(self, paths: Iterable[str]) -> None:
        """Delete files permanently; missing files are ignored, since another process may clean up too."""
        io = self.open_io()
        for path in paths:
            with catalog_errors(f"removing {path}"):
                try:
                    io.delete(path)
                except FileNotFoundError:
                    continue

    def rewrite_files(self, split: LakeSplit, files: Sequence[LakeFile]) -> CommitMessage:
        """Write the rows of `files` that are not deleted, by offset, to new files that replace them."""
        with import_lock:
            from fluss.lake.tables.iceberg.rewriting import rewrite_files

        return rewrite_files(self, split, files)

    def read_files(
        self, files: Iterable[LakeFile], schema: Schema, columns: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Return the rows that are not deleted, in the Arrow types of `schema`; with system columns if named."""
        with import_lock:
            from fluss.lake.tables.iceberg.reading import read_files

        return read_files(self, files, schema, columns)

    def read_positions(self, file: LakeFile, schema: Schema, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Return columns of the rows that are not deleted; the last column is the position of each in the file."""
        with import_lock:
            from fluss.lake.tables.iceberg.reading import read_positions

        return read_positions(self, file, schema, columns)
