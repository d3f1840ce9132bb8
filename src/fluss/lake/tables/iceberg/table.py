"""A loaded Iceberg table: what it contains, commits, plans.

State: `_table` is the table as it was loaded, or as the last commit left it. Invariants:

- a commit adds exactly one snapshot, whose parent is the newest snapshot of this state, or nothing at all: the catalog
  swaps the metadata only if no other commit has (compare and set), and no second attempt is made;
- every snapshot of ours has the offsets of *all* buckets, so the newest one alone shows what is in the lake, and a
  property of the table has them too after it has expired (`last_round.py`);
- a split is accepted only if it starts where the lake ends, whatever planned it.

One thread at a time; several processes may have the table loaded.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence

from pyiceberg.table import Table

from fluss.codec.filters.predicate import Predicate
from fluss.errors import ErrorCode, FlussError
from fluss.lake.tables.iceberg.catalog import catalog_errors
from fluss.lake.tables.iceberg.history import expire_snapshots, history
from fluss.lake.tables.iceberg.last_round import last_round, round_property
from fluss.lake.tables.iceberg.orphans import unreferenced_files
from fluss.lake.tables.iceberg.reading import plan_files
from fluss.lake.tables.iceberg.snapshot_producer import RoundProducer
from fluss.lake.tables.iceberg.target import IcebergTarget
from fluss.lake.tables.interface.format import (
    COMMIT_USER,
    COMMIT_USER_PROPERTY,
    LAST_ROUND_PROPERTY,
    OFFSETS_PROPERTY,
    CommitMessage,
    LakeCommit,
    LakeFile,
    RegisteredSnapshot,
    SnapshotEntry,
)
from fluss.lake.tables.interface.offsets import dump_offsets
from fluss.model.paths import TableBucket
from fluss.model.schema import Schema

# The metadata of a table repeats the properties of every snapshot: a larger document becomes a separate file.
INLINE_OFFSETS_LIMIT_BYTES = 8 << 10


class IcebergTable:
    """One Iceberg table in the state in which it was loaded."""

    def __init__(self, table: Table, registered: RegisteredSnapshot | None = None) -> None:
        self._table = table
        self._registered = registered

    def __str__(self) -> str:
        return ".".join(self._table.name())

    @property
    def snapshot_id(self) -> int | None:
        """The newest snapshot of this state."""
        return self._table.metadata.current_snapshot_id

    @property
    def properties(self) -> Mapping[str, str]:
        """The properties of the lake table, in the state in which it was loaded."""
        return self._table.properties

    def target(self) -> IcebergTarget:
        """The part of the table that tasks need."""
        return IcebergTarget.of(self._table)

    def refreshed(self) -> IcebergTable:
        """Load the table again, in its current state."""
        with catalog_errors(f"loading the lake table {self}"):
            return IcebergTable(self._table.catalog.load_table(self._table.name()), self._registered)

    def last_commit(self, table_id: int) -> LakeCommit | None:
        """The newest snapshot tiered from this Fluss table; code 53 if the lake has less than is registered."""
        with catalog_errors(f"reading the offsets of the lake table {self}"):
            return last_round(self._table, table_id, self._registered)

    def committed_offsets(self, table_id: int) -> Mapping[TableBucket, int]:
        """The offsets of `last_commit`; empty if there is no such snapshot."""
        commit = self.last_commit(table_id)
        return {} if commit is None else commit.offsets

    def snapshot_at(self, timestamp_ms: int) -> int | None:
        """The newest snapshot at a given time; None before the first one, or if it has expired."""
        snapshot = self._table.snapshot_as_of_timestamp(timestamp_ms)
        return None if snapshot is None else snapshot.snapshot_id

    def commit(
        self,
        table_id: int,
        messages: Sequence[CommitMessage],
        offsets: Mapping[TableBucket, int] | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> int:
        """Commit all messages in one snapshot; return its id. `offsets` has the progress of buckets without files."""
        progress = self._progress(table_id, messages, offsets or {})
        with catalog_errors(f"committing a round to the lake table {self}"):
            summary = dict(properties or {})
            summary[COMMIT_USER_PROPERTY] = COMMIT_USER
            offsets_text = self._kept_offsets(dump_offsets(table_id, progress))
            summary[OFFSETS_PROPERTY] = offsets_text
            transaction = self._table.transaction()
            sequence_number = self._table.metadata.next_sequence_number()
            transaction.set_properties({LAST_ROUND_PROPERTY: round_property(sequence_number, offsets_text)})
            producer = RoundProducer(
                transaction,
                [file for message in messages for file in message.added],
                [file for message in messages for file in message.removed],
                [file for message in messages for file in message.position_deletes],
                summary,
                # Only rewritten files: a reader that follows the table from snapshot to snapshot sees no change.
                is_rewrite=bool(messages) and all(each.split.start_offset is None for each in messages),
            )
            producer.commit()
            transaction.commit_transaction()
        return producer.snapshot_id

    def _progress(
        self, table_id: int, messages: Sequence[CommitMessage], offsets: Mapping[TableBucket, int]
    ) -> dict[TableBucket, int]:
        """All offsets after this commit; raises if a split does not start where the lake ends."""
        committed = self.committed_offsets(table_id)
        progress = {**committed, **offsets}
        for message in messages:
            split = message.split
            if split.bucket.table_id != table_id:
                raise FlussError(f"a split of table {split.bucket.table_id} cannot be committed for table {table_id}")
            if split.start_offset is None:
                continue
            tiered = committed.get(split.bucket)
            if tiered is not None and tiered != split.start_offset:
                raise _fenced(
                    f"bucket {split.bucket.bucket_id} of lake table {self} is tiered up to offset {tiered}, but the "
                    f"round starts at {split.start_offset}: another service tiered it; load the table and plan again"
                )
            progress[split.bucket] = split.end_offset
        backwards = [bucket for bucket, offset in committed.items() if progress[bucket] < offset]
        if backwards:
            raise _fenced(
                f"bucket {backwards[0].bucket_id} of lake table {self} is at {committed[backwards[0]]} and would "
                f"go back to an earlier offset, {progress[backwards[0]]}: load the table and plan again"
            )
        return progress

    def _kept_offsets(self, text: str) -> str:
        if len(text) <= INLINE_OFFSETS_LIMIT_BYTES:
            return text
        path = self._table.location_provider().new_metadata_location(f"offsets-{uuid.uuid4()}.json")
        with self._table.io.new_output(path).create() as stream:
            stream.write(text.encode())
        return path

    def plan_files(
        self,
        snapshot_id: int | None = None,
        schema: Schema | None = None,
        predicate: Predicate | None = None,
        buckets: Iterable[tuple[str | None, int]] | None = None,
    ) -> list[LakeFile]:
        """The files of a snapshot that may have rows for `predicate`, of these (partition name, bucket) pairs."""
        return plan_files(self._table, snapshot_id, schema, predicate, buckets)

    def unreferenced_files(self, older_than_ms: int) -> list[str]:
        """Files in the table's directory that no snapshot knows and that are older than this time."""
        return unreferenced_files(self._table, older_than_ms)

    def history(self) -> list[SnapshotEntry]:
        """The newest snapshot, its parent, and so on."""
        return history(self._table)

    def expire_snapshots(self, snapshot_ids: Collection[int]) -> list[str]:
        """Remove snapshots from the history in one commit; return the files that no snapshot needs any more."""
        return expire_snapshots(self._table, snapshot_ids)

    def set_properties(self, properties: Mapping[str, str]) -> None:
        """Change properties of the lake table."""
        with catalog_errors(f"changing properties of the lake table {self}"):
            self._table.transaction().set_properties(dict(properties)).commit_transaction()


def _fenced(message: str) -> FlussError:
    return FlussError(message, ErrorCode.FENCED_TIERING_EPOCH_EXCEPTION)
