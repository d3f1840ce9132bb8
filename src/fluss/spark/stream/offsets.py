"""Offsets of a streaming query as Spark keeps them in its checkpoint: JSON, stable, versioned, small.

Spark compares two offsets as strings: equal offsets must be written identically, or a query runs empty batches forever.
So everything here is sorted, and contains only positions::

    {"buckets": [120, 98], "table_id": 7, "version": 1}
    {"partitions": {"31": [120, 98], "32": [0, 5]}, "table_id": 8, "version": 1}

A number is the offset of the first unread row; its index in the list is the bucket, and the key above it the id of the
partition. While a query that started with `full` has not read the state of all buckets, the remaining ones are listed,
in the same two forms, as `unread_state`: their number is then the offset at which their state is taken, and
`state_time` the time of that decision, in milliseconds since 1970::

    {"buckets": [120, 98], "state_time": 1785585600000, "table_id": 7, "unread_state": [1], "version": 1}

A query that started with `full` on a table with a lake reads the files of one snapshot first, in a fixed order. Until
all are read, `lake` has the snapshot and the number of its files that were read; the numbers of the buckets are then
the offsets at which the log continues after the snapshot. Files of the buckets `without` (name of the partition,
bucket) are left out: their rows are read as state. Such offsets have version 2, which releases without a lake refuse::

    {"buckets": [120, 98], "lake": {"files": 9, "read": 4, "snapshot": 81}, "table_id": 7, "version": 2}

`behind`, again in these forms, lists buckets that had more rows than the batch took. After a restart it shows whether a
partition that was dropped meanwhile had been read to its end. `since`, of a query that started at a time, is that time
in milliseconds: servers return an offset at or before it, and rows from before it are left out.

Spark writes only the ends of batches to its checkpoint. If the first batch has to run again after a crash, Spark asks
for the initial offset again, and by then `latest` has moved. So initial offsets are marked (`initial`), and the end of
the batch that follows contains them (`begin`): the batch begins there, whatever start Spark passes.

All values are immutable.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from fluss.errors import ErrorCode, FlussError
from fluss.model.formats import refuse_newer

if TYPE_CHECKING:
    from fluss.model.json_types import JsonObject

VERSION = 1
LAKE_VERSION = 2
_ADVICE = "Restore the right checkpoint, or start with a new one"

Place: TypeAlias = "tuple[str | None, int]"
"""Partition name, None in a table without partitions, and bucket: the form in which files of the lake name buckets."""
BucketKey: TypeAlias = "tuple[int | None, int]"
"""Partition id, None in a table without partitions, and bucket."""


@dataclass(frozen=True)
class LakeProgress:
    """How many files of a snapshot were read; left out of the offsets as soon as all of them were."""

    snapshot_id: int
    read: int
    files: int
    without: frozenset[Place] = frozenset()

    def to_json(self) -> JsonObject:
        """The JSON form for Spark."""
        document: JsonObject = {"files": self.files, "read": self.read, "snapshot": self.snapshot_id}
        if self.without:
            places = sorted(self.without, key=lambda place: (place[0] or "", place[1]))
            document["without"] = [list(place) for place in places]
        return document

    @staticmethod
    def from_json(document: Mapping[str, Any]) -> LakeProgress:
        """Parse the JSON form; KeyError, TypeError or ValueError if it is invalid."""
        without = frozenset((name, int(bucket)) for name, bucket in document.get("without", []))
        read, files = _offset(document["read"]), _offset(document["files"])
        if read >= files:
            raise ValueError(f"{read} of {files} files were read")
        return LakeProgress(int(document["snapshot"]), read, files, without)


@dataclass(frozen=True)
class StreamOffsets:
    """The progress of a query in every bucket."""

    table_id: int
    positions: Mapping[BucketKey, int]
    unread_state: frozenset[BucketKey] = frozenset()
    state_time_ms: int | None = None
    """When the offset of the unread state was chosen; None when no state is unread."""
    behind: frozenset[BucketKey] = frozenset()
    since_ms: int | None = None
    is_initial: bool = False
    begin: StreamOffsets | None = None
    """The initial offsets, contained in the end of the first batch."""
    lake: LakeProgress | None = None
    """The progress in the files of the lake; None when no file remains to be read."""

    def to_json(self) -> JsonObject:
        """The JSON form for Spark; equal values give equal strings."""
        document: JsonObject = {"table_id": self.table_id, "version": self._version}
        by_partition = _by_partition(self.positions.items())
        if list(by_partition) == [None]:
            document["buckets"] = by_partition[None]
        else:
            document["partitions"] = _with_string_keys(by_partition)
        if self.unread_state:
            document["state_time"] = self.state_time_ms
            document["unread_state"] = _set_to_json(self.unread_state)
        if self.behind:
            document["behind"] = _set_to_json(self.behind)
        if self.since_ms is not None:
            document["since"] = self.since_ms
        if self.is_initial:
            document["initial"] = True
        if self.begin is not None:
            document["begin"] = self.begin.to_json()
        if self.lake is not None:
            document["lake"] = self.lake.to_json()
        return dict(sorted(document.items()))

    @property
    def _version(self) -> int:
        speaks_of_lake = self.lake is not None or (self.begin is not None and self.begin.lake is not None)
        return LAKE_VERSION if speaks_of_lake else VERSION

    @staticmethod
    def from_json(document: Mapping[str, Any]) -> StreamOffsets:
        """Parse the value of a checkpoint; raise for content that no release up to this one has written."""
        version = document.get("version")
        refuse_newer("the stream's checkpoint", version, LAKE_VERSION, ErrorCode.CLIENT_ERROR)
        if version not in (VERSION, LAKE_VERSION):
            raise FlussError(
                f"the checkpoint has offsets of version {version!r}, which no release has written: "
                "restore the right checkpoint, or start with a new one"
            )
        try:
            positions = _positions(document)
            pending = frozenset(_keys(document.get("unread_state", [])))
            behind = frozenset(_keys(document.get("behind", [])))
            state_time_ms = int(document["state_time"]) if pending else None
            since_ms = int(document["since"]) if "since" in document else None
            table_id = int(document["table_id"])
            begin = StreamOffsets.from_json(document["begin"]) if "begin" in document else None
            lake = LakeProgress.from_json(document["lake"]) if "lake" in document else None
        except (KeyError, TypeError, ValueError) as error:
            raise FlussError(
                f"the checkpoint has offsets that cannot be read ({error!r}): {dict(document)}. {_ADVICE}"
            ) from None
        if not pending | behind <= positions.keys():
            raise FlussError(f"the checkpoint names buckets without offsets: {dict(document)}. {_ADVICE}")
        is_initial = bool(document.get("initial", False))
        return StreamOffsets(table_id, positions, pending, state_time_ms, behind, since_ms, is_initial, begin, lake)


def _set_to_json(keys: Iterable[BucketKey]) -> object:
    by_partition = _by_partition((key, key[1]) for key in keys)
    return by_partition[None] if list(by_partition) == [None] else _with_string_keys(by_partition)


def _with_string_keys(by_partition: dict[int | None, list[int]]) -> dict[str, list[int]]:
    return {str(partition_id): numbers for partition_id, numbers in by_partition.items()}


def _by_partition(entries: Iterable[tuple[BucketKey, int]]) -> dict[int | None, list[int]]:
    found: dict[int | None, list[int]] = {}
    for (partition_id, _), number in sorted(entries, key=lambda entry: _order(entry[0])):
        found.setdefault(partition_id, []).append(number)
    return found


def _order(key: BucketKey) -> tuple[int, int]:
    partition_id, bucket = key
    return (-1 if partition_id is None else partition_id, bucket)


def sorted_keys(keys: Iterable[BucketKey]) -> list[BucketKey]:
    """Buckets in the order of the JSON form."""
    return sorted(keys, key=_order)


def _positions(document: Mapping[str, Any]) -> dict[BucketKey, int]:
    if "buckets" in document:
        return {(None, bucket): _offset(offset) for bucket, offset in enumerate(document["buckets"])}
    return {
        (int(partition_id), bucket): _offset(offset)
        for partition_id, offsets in document["partitions"].items()
        for bucket, offset in enumerate(offsets)
    }


def _offset(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"not an offset: {value!r}")
    return value


def _keys(pending: Any) -> list[BucketKey]:
    if isinstance(pending, list):
        return [(None, int(bucket)) for bucket in pending]
    return [(int(partition_id), int(bucket)) for partition_id, buckets in pending.items() for bucket in buckets]
