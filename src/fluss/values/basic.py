"""Small public value classes: paths, buckets, change types, offsets, servers, partitions, lake snapshots."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import Any

from fluss.errors import FlussError
from fluss.model import paths

EARLIEST_OFFSET = -2
"""Start reading at the oldest row that still exists."""
LATEST_OFFSET = -1
"""Start reading after the newest row; resolved when a scanner subscribes."""


class ChangeType(IntEnum):
    """The kind of change that a log record describes. The number is the byte on the wire."""

    AppendOnly = 0
    Insert = 1
    UpdateBefore = 2
    UpdateAfter = 3
    Delete = 4

    def short_string(self) -> str:
        """`+A`, `+I`, `-U`, `+U` or `-D`."""
        return ("+A", "+I", "-U", "+U", "-D")[self]

    def __repr__(self) -> str:
        return f"ChangeType.{self.name}"

    def __str__(self) -> str:
        return self.short_string()


class TablePath(paths.TablePath):
    """The database and the name of a table.

    >>> TablePath("fluss", "events") == TablePath(database_name="fluss", table_name="events")
    True
    """

    def __init__(
        self,
        database: str | None = None,
        table: str | None = None,
        *,
        database_name: str | None = None,
        table_name: str | None = None,
    ) -> None:
        object.__setattr__(self, "database_name", _one_name("database", database, database_name))
        object.__setattr__(self, "table_name", _one_name("table", table, table_name))

    @property
    def database(self) -> str:
        """Alias of `database_name`."""
        return self.database_name

    @property
    def table(self) -> str:
        """Alias of `table_name`."""
        return self.table_name

    def table_path_str(self) -> str:
        """The path as one string, `database.table`."""
        return str(self)

    # Equal to the internal class of the same name, so that either finds the entry of a dict.
    def __eq__(self, other: object) -> bool:
        if not isinstance(other, paths.TablePath):
            return NotImplemented
        return (self.database_name, self.table_name) == (other.database_name, other.table_name)

    def __hash__(self) -> int:
        return hash((self.database_name, self.table_name))

    def __reduce__(self) -> tuple[object, ...]:
        return TablePath, (self.database_name, self.table_name)

    def __repr__(self) -> str:
        return f"TablePath({self.database_name!r}, {self.table_name!r})"


def _one_name(what: str, short: str | None, long: str | None) -> str:
    name = short if short is not None else long
    if not isinstance(name, str):
        raise FlussError(f"the {what} name of a table path must be a string, got {name!r}")
    return name


def as_table_path(value: object) -> TablePath:
    """The public form of a table path, which may be given as a path or as a string `database.table`."""
    if isinstance(value, TablePath):
        return value
    if isinstance(value, paths.TablePath):
        return TablePath(value.database_name, value.table_name)
    if isinstance(value, str) and value.count(".") == 1:
        return TablePath(*value.split("."))
    raise FlussError(f"a table must be a TablePath or 'database.table', got {value!r}")


class TableBucket(paths.TableBucket):
    """One bucket of a table, or of a partition.

    >>> TableBucket(7, 0)
    TableBucket(table_id=7, bucket=0)
    >>> TableBucket.with_partition(7, 3, 0)
    TableBucket(table_id=7, partition_id=3, bucket=0)
    """

    __slots__ = ()

    def __new__(cls, table_id: int, bucket: int) -> TableBucket:
        return cls.with_partition(table_id, None, bucket)

    @classmethod
    def with_partition(cls, table_id: int, partition_id: int | None, bucket: int) -> TableBucket:
        """A bucket of a partition; with a `partition_id` of None, of a table without partitions."""
        return tuple.__new__(cls, (table_id, partition_id, bucket))

    def __reduce__(self) -> tuple[object, ...]:
        return TableBucket.with_partition, tuple(self)

    def __repr__(self) -> str:
        partition = "" if self.partition_id is None else f"partition_id={self.partition_id}, "
        return f"TableBucket(table_id={self.table_id}, {partition}bucket={self.bucket_id})"

    __str__ = __repr__


def public_bucket(bucket: paths.TableBucket) -> TableBucket:
    """The public form of a bucket; it equals the internal one and has the same hash."""
    return bucket if isinstance(bucket, TableBucket) else TableBucket.with_partition(*bucket)


@dataclass(frozen=True)
class ServerNode:
    """A coordinator or tablet server of the cluster, and its address."""

    id: int
    host: str
    port: int
    server_type: str
    rack: str | None = None

    @property
    def uid(self) -> str:
        """`cs-0` for a coordinator, `ts-1` for a tablet server."""
        return f"{'cs' if self.server_type == COORDINATOR_SERVER else 'ts'}-{self.id}"


COORDINATOR_SERVER = "CoordinatorServer"
TABLET_SERVER = "TabletServer"


class OffsetType(Enum):
    """The kinds of offsets that can be looked up. `OffsetSpec` is the form that Apache Fluss documents."""

    EARLIEST = "earliest"
    LATEST = "latest"
    TIMESTAMP = "timestamp"


@dataclass(frozen=True)
class OffsetSpec:
    """The offset to look up: `earliest()`, `latest()` or `timestamp(milliseconds)`."""

    offset_type: OffsetType
    timestamp_ms: int | None = None

    @staticmethod
    def earliest() -> OffsetSpec:
        """The offset of the oldest row that still exists."""
        return OffsetSpec(OffsetType.EARLIEST)

    @staticmethod
    def latest() -> OffsetSpec:
        """The offset after the newest row."""
        return OffsetSpec(OffsetType.LATEST)

    @staticmethod
    def timestamp(ts: int) -> OffsetSpec:
        """The offset of the first row at or after a time in milliseconds since 1970."""
        if isinstance(ts, bool) or not isinstance(ts, int):
            raise FlussError(f"timestamp must be an int (milliseconds since 1970), got {ts!r}")
        return OffsetSpec(OffsetType.TIMESTAMP, ts)

    def __repr__(self) -> str:
        inner = "" if self.timestamp_ms is None else str(self.timestamp_ms)
        return f"OffsetSpec.{self.offset_type.value}({inner})"


def resolve_offset_spec(offset_spec: object, offset_type: object, timestamp: int | None) -> OffsetSpec:
    """The `OffsetSpec` for the arguments of `list_offsets`; an argument of None counts as not given."""
    spec = offset_spec if offset_spec is not None else offset_type
    if isinstance(spec, OffsetSpec):
        return spec
    name = spec.value if isinstance(spec, OffsetType) else spec
    kinds = {kind.value: kind for kind in OffsetType}
    if not isinstance(name, str) or name.lower() not in kinds:
        given = "nothing" if spec is None else repr(spec)
        raise FlussError(
            "offsets must be given as OffsetSpec.earliest(), OffsetSpec.latest() or OffsetSpec.timestamp(ms), "
            f"or as offset_type 'earliest', 'latest' or 'timestamp'; got {given}"
        )
    kind = kinds[name.lower()]
    if kind is not OffsetType.TIMESTAMP:
        return OffsetSpec(kind)
    if timestamp is None:
        raise FlussError("offset_type 'timestamp' requires timestamp=<milliseconds since 1970>")
    return OffsetSpec.timestamp(timestamp)


class PartitionSpec(Mapping[str, str]):
    """Partition columns and their values. A plain dict is accepted wherever a PartitionSpec is."""

    def __init__(self, spec_map: Mapping[str, str]) -> None:
        self._spec_map = dict(spec_map)

    def get_spec_map(self) -> dict[str, str]:
        """The columns and values as a dict."""
        return dict(self._spec_map)

    def __getitem__(self, name: str) -> str:
        return self._spec_map[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._spec_map)

    def __len__(self) -> int:
        return len(self._spec_map)

    def __hash__(self) -> int:
        return hash(frozenset(self._spec_map.items()))

    def __repr__(self) -> str:
        return f"PartitionSpec({self._spec_map})"


@dataclass(frozen=True)
class PartitionInfo:
    """The id and the values of one partition of a table."""

    partition_id: int
    partition_name: str
    partition_spec: PartitionSpec = field(default_factory=lambda: PartitionSpec({}), compare=False)

    def get_partition_id(self) -> int:
        """The id of the partition, which is unique in the cluster."""
        return self.partition_id

    def get_partition_name(self) -> str:
        """The values of the partition columns, joined with `$`."""
        return self.partition_name

    def get_partition_spec(self) -> PartitionSpec:
        """The partition columns and their values."""
        return self.partition_spec


class LakeSnapshot:
    """A snapshot of a table in the lake, and the offset up to which it covers each bucket."""

    def __init__(self, snapshot_id: int, table_buckets_offset: Mapping[Any, int] | None = None) -> None:
        self._snapshot_id = snapshot_id
        self._offsets = {public_bucket(bucket): offset for bucket, offset in (table_buckets_offset or {}).items()}

    @property
    def snapshot_id(self) -> int:
        """The id of the snapshot in the lake."""
        return self._snapshot_id

    @property
    def table_buckets_offset(self) -> dict[TableBucket, int]:
        """The offset up to which the snapshot covers each bucket."""
        return dict(self._offsets)

    def get_bucket_offset(self, bucket: paths.TableBucket) -> int | None:
        """The offset up to which the snapshot covers a bucket; None if it has no rows of the bucket."""
        return self._offsets.get(public_bucket(bucket))

    def get_table_buckets(self) -> list[TableBucket]:
        """The buckets whose rows the snapshot has."""
        return list(self._offsets)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LakeSnapshot):
            return NotImplemented
        return (self.snapshot_id, self._offsets) == (other.snapshot_id, other._offsets)

    def __hash__(self) -> int:
        return hash((self.snapshot_id, frozenset(self._offsets.items())))

    def __repr__(self) -> str:
        return f"LakeSnapshot(snapshot_id={self.snapshot_id}, buckets={len(self._offsets)})"
