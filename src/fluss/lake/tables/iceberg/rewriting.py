"""Rewriting the files of a bucket: small ones become large ones, deleted rows are left out.

Rows are copied as they are in the lake, with all columns that the table has now. They are in the order of `__offset`:
files with ranges that do not overlap follow each other; where ranges overlap (a primary-key table whose bucket
was written from its state), the rows of those files are sorted together, in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from fluss.lake.tables.iceberg.reading import lake_rows
from fluss.lake.tables.iceberg.target import IcebergTarget
from fluss.lake.tables.iceberg.values import file_schema
from fluss.lake.tables.iceberg.writing import write_split
from fluss.lake.tables.interface.format import OFFSET_COLUMN, CommitMessage, LakeFile, LakeSplit

AFTER_ALL_OFFSETS = 1 << 63


def rewrite_files(target: IcebergTarget, split: LakeSplit, files: Sequence[LakeFile]) -> CommitMessage:
    """Write new files with the rows of `files`; the message replaces `files`."""
    return write_split(target, split, _rows(target, files), files)


def _rows(target: IcebergTarget, files: Sequence[LakeFile]) -> Iterator[pa.RecordBatch]:
    schema = file_schema(target.metadata.schema())
    for together in overlapping_runs(files):
        batches = (batch for file in together for batch in lake_rows(target, file, schema))
        if len(together) == 1:
            yield from batches
        else:
            yield from pa.Table.from_batches(batches, schema).sort_by(OFFSET_COLUMN).combine_chunks().to_batches()


def overlapping_runs(files: Sequence[LakeFile]) -> list[list[LakeFile]]:
    """Group the files by first offset; files whose ranges overlap or are unknown are in one group."""

    def first(file: LakeFile) -> int:
        return -1 if file.first_offset is None else file.first_offset

    runs: list[list[LakeFile]] = []
    end = -1
    for file in sorted(files, key=lambda each: (first(each), each.path)):
        if runs and first(file) <= end:
            runs[-1].append(file)
        else:
            runs.append([file])
        end = max(end, AFTER_ALL_OFFSETS if file.last_offset is None else file.last_offset)
    return runs
