"""The start of a query with `full` on a table with a lake: the files of one snapshot, then the log after it.

The snapshot is the one that is registered when the query begins. The log is read from the offset at which the snapshot
ends, so there is no gap and no overlap, whatever is tiered afterwards. A bucket of a primary-key table that the
snapshot does not contain, or whose changelog no longer reaches back to it, is read as live state instead.

The files of a snapshot never change, so their order is the same after a restart. If a snapshot expires before all of it
was read, the query ends with an error that explains this.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence

from fluss.errors import ErrorCode, FlussError
from fluss.lake.reading.lake_access import load_lake_table, registered_snapshot, snapshot_files
from fluss.lake.reading.plan import is_needed
from fluss.lake.tables.interface.format import LakeFile, LakeTarget
from fluss.model.properties import DATALAKE_ENABLED, property_value
from fluss.spark.options.parsing import FlussOptions
from fluss.spark.stream.offsets import BucketKey, LakeProgress, Place, StreamOffsets
from fluss.spark.stream.table_watch import TableWatch
from fluss.values.basic import LakeSnapshot, TableBucket


def lake_start(options: FlussOptions, watch: TableWatch) -> StreamOffsets | None:
    """The offsets of a query that begins in the lake, or None if it begins elsewhere."""
    start = options.read.start
    opened = watch.opened
    has_lake = bool(property_value(opened.info.get_properties(), DATALAKE_ENABLED))
    if not has_lake or options.read.union is False or (start is not None and start.kind != "full"):
        return None
    watch.look(now=True)  # before the snapshot: a partition that is already dropped was tiered to its end
    table = opened.access
    snapshot = registered_snapshot(table)
    if snapshot is None:
        return None
    earliest = watch.earliest()
    try:
        snapshot, files = snapshot_files(load_lake_table(table, snapshot), table, snapshot)
    except FlussError:
        # The lake cannot be reached from here, or its packages are not installed; it may not be needed.
        buckets = {TableBucket.with_partition(watch.table_id, *key): offset for key, offset in earliest.items()}
        if is_needed(table, snapshot, watch.partitions, buckets):
            raise
        return None
    return _offsets_behind(snapshot, files, watch, earliest)


def _offsets_behind(
    snapshot: LakeSnapshot, files: Sequence[LakeFile], watch: TableWatch, earliest: Mapping[BucketKey, int]
) -> StreamOffsets:
    has_primary_key = watch.opened.info.has_primary_key()
    latest = watch.latest()
    positions: dict[BucketKey, int] = {}
    pending: set[BucketKey] = set()
    for key, end in latest.items():
        tiered = snapshot.get_bucket_offset(TableBucket.with_partition(watch.table_id, *key))
        begins = earliest.get(key, 0)
        if tiered is not None and tiered >= begins:
            positions[key] = tiered
        elif has_primary_key:
            positions[key] = end
            if end:
                pending.add(key)
        elif tiered is None:
            positions[key] = begins
        else:
            raise FlussError(
                f"{next(iter(watch.names_of([key]).values()))} of {watch.opened.info.table_path}: the lake ends at "
                f"offset {tiered} and the log begins at {begins}, so the rows in between expired before tiering. "
                "Start with start=earliest (the log alone), or read the lake with a batch query",
                ErrorCode.LOG_OFFSET_OUT_OF_RANGE_EXCEPTION,
            )
    without = frozenset((watch.partitions[partition_id], bucket) for partition_id, bucket in pending)
    count = len(_files_of(files, without))
    return StreamOffsets(
        watch.table_id,
        positions,
        frozenset(pending),
        int(time.time() * 1000) if pending else None,
        is_initial=True,
        lake=LakeProgress(snapshot.snapshot_id, 0, count, without) if count else None,
    )


class SnapshotFiles:
    """The files of the snapshot that a query reads, in reading order; requested once."""

    def __init__(self, watch: TableWatch) -> None:
        self._watch = watch
        self._known: tuple[LakeProgress, list[LakeFile], LakeTarget] | None = None

    def of(self, lake: LakeProgress) -> tuple[list[LakeFile], LakeTarget]:
        """All files that the query reads, including those already read, and the lake target that reads them."""
        if self._known is None or self._known[0].snapshot_id != lake.snapshot_id:
            files, target = self._load(lake.snapshot_id)
            chosen = _files_of(files, lake.without)
            if len(chosen) != lake.files:
                raise FlussError(
                    f"snapshot {lake.snapshot_id} of the lake table {self._watch.opened.info.table_path} has "
                    f"{len(chosen)} files to read, but the checkpoint has {lake.files}: it belongs to another table, "
                    "or was written by another release. Start with a new checkpoint",
                    ErrorCode.INVALID_CONFIG_EXCEPTION,
                )
            self._known = lake, chosen, target
        return self._known[1], self._known[2]

    def sizes(self, lake: LakeProgress) -> list[tuple[int, int]]:
        """The numbers of rows and bytes of each file."""
        return [(file.row_count - file.deleted_rows, file.size_bytes) for file in self.of(lake)[0]]

    def _load(self, snapshot_id: int) -> tuple[list[LakeFile], LakeTarget]:
        opened = self._watch.opened
        table = load_lake_table(opened.access)
        try:
            return table.plan_files(snapshot_id), table.target()
        except FlussError as error:
            if error.error_code != ErrorCode.LAKE_SNAPSHOT_NOT_EXIST:
                raise
            raise FlussError(
                f"the query on {opened.info.table_path} began with snapshot {snapshot_id} of the lake, which expired "
                "before all of it was read. Start with a new checkpoint; how long snapshots are kept is the "
                "property iceberg.history.expire.max-snapshot-age-ms of the table",
                ErrorCode.LAKE_SNAPSHOT_NOT_EXIST,
            ) from error


def _files_of(files: Iterable[LakeFile], without: frozenset[Place]) -> list[LakeFile]:
    return [file for file in files if (file.partition_name, file.bucket_id) not in without]
