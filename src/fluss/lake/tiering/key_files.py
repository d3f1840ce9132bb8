"""Writes the changes of a primary-key bucket to its files in the lake.

There are two ways, with the same resulting rows:

- copy-on-write: the unchanged rows of the old files and the new rows become new files that replace the old ones;
- position deletes: the new rows become a new file, and the old rows of changed keys are hidden in their files. Reading
  costs more and writing less, so this is for large buckets with few changes.

Key columns decide which old row is hidden; a key exists at most once in a bucket of the lake.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fluss.client.engine.keys import ChangedKeys
from fluss.lake.reading.merge import MergeKeys
from fluss.lake.tables.interface.format import SYSTEM_COLUMNS, CommitMessage, LakeFile, LakeSplit
from fluss.lake.tiering.changes import Changes
from fluss.lake.tiering.options import TieringOptions
from fluss.lake.tiering.task_values import TableWork


def uses_position_deletes(files: Sequence[LakeFile], changed_keys: int, options: TieringOptions) -> bool:
    """True if hiding old rows is cheaper than rewriting the bucket.

    >>> uses_position_deletes([], 10, TieringOptions())
    False
    """
    rows = sum(file.row_count for file in files)
    hidden = sum(file.deleted_rows for file in files)
    return (
        sum(file.size_bytes for file in files) >= options.position_deletes_from_bytes
        and changed_keys <= options.position_deletes_max_share * rows
        and len(files) < options.max_files_per_bucket
        and hidden + changed_keys <= options.max_deleted_share * rows
    )


def write_changes(
    work: TableWork, split: LakeSplit, files: Sequence[LakeFile], changes: Changes, keys: MergeKeys
) -> CommitMessage:
    """Write the changes of one split, in the way that `uses_position_deletes` chooses."""
    target = work.target
    new_rows = [] if changes.rows is None else [changes.rows]
    if changes.keys is None:
        return CommitMessage(split, 0)
    if not files:
        return target.write_split(split, new_rows)
    if uses_position_deletes(files, len(changes.keys), work.options):
        message = target.write_split(split, new_rows)
        try:
            return target.delete_rows(message, _hidden(work, files, changes.keys, keys))
        except BaseException:
            target.discard([message])
            raise
    return target.write_split(split, _rewritten(work, files, changes.keys, keys, new_rows), files)


def _rewritten(
    work: TableWork, files: Sequence[LakeFile], changed: pa.Array, keys: MergeKeys, new_rows: Sequence[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    names = [*work.table.schema.column_names, *SYSTEM_COLUMNS]
    changed_keys = ChangedKeys(changed)
    for group in changed_keys.groups(work.target.read_files(files, work.table.schema, names)):
        masks = changed_keys.unchanged([keys.of(batch) for batch in group])
        for batch, mask in zip(group, masks, strict=True):
            if mask.true_count:
                yield batch if mask.true_count == batch.num_rows else batch.filter(mask)
    yield from new_rows


def _hidden(
    work: TableWork, files: Sequence[LakeFile], changed: pa.Array, keys: MergeKeys
) -> Mapping[LakeFile, pa.Array]:
    """The positions of the rows whose keys changed, by file."""
    found: dict[LakeFile, pa.Array] = {}
    changed_keys = ChangedKeys(changed)
    for file in files:
        positions = []
        for group in changed_keys.groups(work.target.read_positions(file, work.table.schema, keys.names)):
            masks = changed_keys.unchanged([keys.of(batch) for batch in group])
            for batch, mask in zip(group, masks, strict=True):
                if mask.true_count < batch.num_rows:
                    positions.append(batch.column(batch.num_columns - 1).filter(pc.invert(mask)).to_numpy())
        if positions:
            found[file] = pa.array(np.concatenate(positions))
    return found
