"""Large primary-key buckets as several tasks, each with a range of the keys.

All pieces of a bucket are its rows at the offset at which it was planned: changes made while tasks wait and run are
undone with the old images in the changelog (`fluss.client.state.bucket_state`). So tables whose changelog has none
(`table.changelog.image=WAL`) are not cut, and neither are tables on servers that cannot scan ranges of keys.
"""

from __future__ import annotations

from collections.abc import Sequence

from fluss.model.properties import CHANGELOG_IMAGE, property_value
from fluss.spark.options.parsing import ReadOptions
from fluss.spark.read.splits import TARGET_SPLIT_BYTES, StateSplit, interleaved
from fluss.spark.sessions.connection_cache import OpenTable
from fluss.values.basic import TableBucket

# Servers allow this many concurrent scans of a bucket by default; more tasks would only wait for each other.
MAX_PIECES_PER_BUCKET = 8


def cut_states(opened: OpenTable, splits: Sequence[StateSplit], read: ReadOptions) -> list[StateSplit]:
    """Cut buckets into pieces of the size that the user gave, or by default of the usual size of a task.

    More pieces make a query faster that computes much per row, but not the read itself: one thread of the server reads
    a bucket for all of them.
    """
    if property_value(opened.info.get_properties(), CHANGELOG_IMAGE) != "FULL":
        return list(splits)
    max_rows, max_bytes = read.max_records_per_partition, read.max_bytes_per_partition
    max_pieces = MAX_PIECES_PER_BUCKET if max_rows is None and max_bytes is None else None
    table = opened.access
    buckets = {
        split: TableBucket.with_partition(table.table_id, split.partition_id, split.bucket_id) for split in splits
    }
    found = opened.run(table.key_pieces(buckets.values(), max_bytes or TARGET_SPLIT_BYTES, max_rows))
    groups = []
    for split in splits:
        pieces = found.get(buckets[split])
        ranges = [] if pieces is None else pieces.ranges(max_pieces)
        if pieces is None or len(ranges) == 1:
            groups.append([split])
        else:
            groups.append([StateSplit(split.partition_id, split.bucket_id, pieces.offset, each) for each in ranges])
    return interleaved(groups)
