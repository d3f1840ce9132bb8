"""The interface of a lake format; `lake.tables.open_lake` opens one.

Three objects with three lifetimes:

- `LakeFormat`: a catalog. The server creates and changes tables with it.
- `LakeTable`: one table *as it was when it was loaded*. Plans and commits belong to that state: a commit succeeds only
  if there was no other commit since, so of two services that planned from the same state one fails and loads again.
- `LakeTarget`: what a task needs to write, read and remove files of that state, in any process. It can be pickled; it
  commits nothing.

A round of tiering is: load, plan, `write_split` in tasks, `commit` once. Files of a round that never commits belong to
no snapshot; readers do not see them and maintenance removes them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from fluss.codec.filters.predicate import Predicate
from fluss.model.descriptor import TableDescriptor
from fluss.model.paths import TableBucket, TablePath
from fluss.model.schema import Column, Schema

BUCKET_COLUMN = "__bucket"
OFFSET_COLUMN = "__offset"
TIMESTAMP_COLUMN = "__timestamp"
SYSTEM_COLUMNS = (BUCKET_COLUMN, OFFSET_COLUMN, TIMESTAMP_COLUMN)

COMMIT_USER_PROPERTY = "commit-user"
COMMIT_USER = "__fluss_lake_tiering"
# The address of the coordinator's offsets document of this round (Apache Fluss has only this one).
OFFSETS_PATH_PROPERTY = "fluss-offsets"
# The offsets themselves, so that the lake alone shows what is in it: the document, or the address of its file.
OFFSETS_PROPERTY = "fluss-bucket-offsets"
# The offsets of the newest round as a property of the table, which stays when snapshots expire.
LAST_ROUND_PROPERTY = "fluss-last-round"


@dataclass(frozen=True)
class LakeTableSpec:
    """A Fluss table as the specification of its lake table."""

    path: TablePath
    descriptor: TableDescriptor


@dataclass(frozen=True)
class LakeSplit:
    """A range of one bucket's log that becomes files. `start_offset` None: not a range of the log (compaction)."""

    bucket: TableBucket
    partition_name: str | None
    start_offset: int | None
    end_offset: int


@dataclass(frozen=True)
class LakeFile:
    """A file of a snapshot, with the deletes that apply to it in `handle`, which only its format can read.

    Can be pickled. `first_offset` is its lowest offset of the log, if the statistics have it.
    """

    path: str
    bucket_id: int | None
    partition_name: str | None
    row_count: int
    size_bytes: int
    deleted_rows: int
    handle: Any = field(repr=False, compare=False)
    # From the file's statistics, both inclusive; None for files of other writers without statistics.
    first_offset: int | None = None
    last_offset: int | None = None
    delete_file_count: int = 0


@dataclass(frozen=True)
class CommitMessage:
    """The result of a task for one split. Can be pickled. Only the format that wrote the files can read them.

    `removed` are files that the added ones replace (copy-on-write); `position_deletes` hide rows of files that stay.
    """

    split: LakeSplit
    row_count: int
    added: tuple[Any, ...] = ()
    removed: tuple[Any, ...] = ()
    position_deletes: tuple[Any, ...] = ()

    @property
    def byte_count(self) -> int:
        """The size of all written files."""
        return sum(file.file_size_in_bytes for file in (*self.added, *self.position_deletes))


@dataclass(frozen=True)
class LakeCommit:
    """A snapshot of the lake table that tiering has committed, with its offsets and all of its properties."""

    snapshot_id: int
    timestamp_ms: int
    offsets: Mapping[TableBucket, int]
    properties: Mapping[str, str]


@dataclass(frozen=True)
class RegisteredSnapshot:
    """The newest snapshot of a Fluss table that the coordinator knows.

    It is requested *before* the lake table is loaded, so a lake table without it has lost it.
    """

    table_id: int
    snapshot_id: int
    offsets: Mapping[TableBucket, int]


@dataclass(frozen=True)
class SnapshotEntry:
    """A snapshot in the history of a table. Until `superseded_ms` it was the newest; None: it still is.

    `is_named`: a branch or a tag is on it.
    """

    snapshot_id: int
    timestamp_ms: int
    superseded_ms: int | None
    is_named: bool
    properties: Mapping[str, str]


class LakeTarget(Protocol):
    """Writes, reads and removes files of one state of a table, in any process."""

    def write_split(
        self, split: LakeSplit, batches: Iterable[pa.RecordBatch], replaces: Sequence[LakeFile] = ()
    ) -> CommitMessage:
        """Write rows with `__offset` and `__timestamp` to new files, which replace the files in `replaces`."""

    def delete_rows(self, message: CommitMessage, positions: Mapping[LakeFile, pa.Array]) -> CommitMessage:
        """Return `message` with position deletes for rows of files that stay."""

    def discard(self, messages: Iterable[CommitMessage]) -> None:
        """Remove the files of messages that will not be committed. Not after a commit with an unknown result."""

    def remove_files(self, paths: Iterable[str]) -> None:
        """Delete files permanently that no snapshot knows any more; missing files are ignored."""

    def rewrite_files(self, split: LakeSplit, files: Sequence[LakeFile]) -> CommitMessage:
        """Write the rows of `files` that are not deleted, by offset, to new files that replace them. Rows are copied
        with all columns, so no schema of Fluss is needed."""

    def read_files(
        self, files: Iterable[LakeFile], schema: Schema, columns: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Return the rows that are not deleted, in the Arrow types of `schema`; with system columns if named."""

    def read_positions(self, file: LakeFile, schema: Schema, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Return columns of the rows that are not deleted; the last column is the position of each in the file."""


class LakeTable(Protocol):
    """A lake table in the state in which it was loaded."""

    @property
    def snapshot_id(self) -> int | None:
        """The newest snapshot of this state."""

    @property
    def properties(self) -> Mapping[str, str]:
        """The properties of the lake table, in the state in which it was loaded."""

    def target(self) -> LakeTarget:
        """The part of the table that tasks need."""

    def refreshed(self) -> LakeTable:
        """Load the table again, in its current state."""

    def last_commit(self, table_id: int) -> LakeCommit | None:
        """The newest snapshot tiered from this Fluss table; code 53 if the lake has less than is registered."""

    def committed_offsets(self, table_id: int) -> Mapping[TableBucket, int]:
        """The offsets of `last_commit`; empty if there is no such snapshot."""

    def snapshot_at(self, timestamp_ms: int) -> int | None:
        """The newest snapshot at a given time; None before the first one, or if it has expired."""

    def commit(
        self,
        table_id: int,
        messages: Sequence[CommitMessage],
        offsets: Mapping[TableBucket, int] | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> int:
        """Commit all messages in one snapshot; return its id. `offsets` has the progress of buckets without files."""

    def plan_files(
        self,
        snapshot_id: int | None = None,
        schema: Schema | None = None,
        predicate: Predicate | None = None,
        buckets: Iterable[tuple[str | None, int]] | None = None,
    ) -> list[LakeFile]:
        """The files of a snapshot that may have rows for `predicate`, of these (partition name, bucket) pairs."""

    def unreferenced_files(self, older_than_ms: int) -> list[str]:
        """Files in the table's directory that no snapshot knows and that are older than this time."""

    def history(self) -> list[SnapshotEntry]:
        """The newest snapshot, its parent, and so on."""

    def expire_snapshots(self, snapshot_ids: Collection[int]) -> list[str]:
        """Remove snapshots from the history in one commit; return the files that no snapshot needs any more."""

    def set_properties(self, properties: Mapping[str, str]) -> None:
        """Change properties of the lake table."""


class LakeFormat(Protocol):
    """A catalog of lake tables in one format."""

    def create_table(self, spec: LakeTableSpec, must_be_empty: bool = True, may_lack_columns: bool = False) -> None:
        """Create the lake table and its database; an existing one is accepted if it passes `check_compatible`.

        `may_lack_columns`: the last columns may be missing in it; they are added then.
        """

    def check_compatible(self, spec: LakeTableSpec, must_be_empty: bool, may_lack_columns: bool = False) -> None:
        """Raise code 54 unless the existing lake table fits this Fluss table."""

    def add_columns(self, path: TablePath, columns: Sequence[Column]) -> None:
        """Add nullable columns after those of the user; existing columns of the same type are left alone."""

    def change_properties(self, before: LakeTableSpec, after: LakeTableSpec) -> None:
        """Change the users' properties of the format (`iceberg.*`) from one state of the Fluss table to another."""

    def load(self, path: TablePath, registered: RegisteredSnapshot | None = None) -> LakeTable:
        """Load the current table; code 7 if there is none. `registered` helps if the lake alone does not show
        up to which offsets it has rows."""

    def close(self) -> None:
        """Close the connections of the catalog."""
