"""The progress of a Fluss table in its lake table: the offsets of the newest round, and where they can be read.

| the newest snapshots are | where the offsets are |
|---|---|
| a round of ours | the snapshot has the document, or the address of a file with it |
| a round of Apache Fluss | the snapshot has the address of the coordinator's file |
| a round whose file cannot be read from here | the coordinator, if it has registered this very snapshot |
| rewritten by others, and the rounds before have expired | a property of the lake table, and the coordinator |

The commit of each round writes the property. It stays when snapshots expire, and even covers a round that died before
it was registered. What the coordinator has registered must be in the lake: a lake with less has lost rows, and
continuing from there would tier rows twice or never.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot, ancestors_of

from fluss.errors import ErrorCode, FlussError
from fluss.lake.tables.iceberg.catalog import catalog_errors
from fluss.lake.tables.interface.format import (
    COMMIT_USER,
    COMMIT_USER_PROPERTY,
    LAST_ROUND_PROPERTY,
    OFFSETS_PATH_PROPERTY,
    OFFSETS_PROPERTY,
    LakeCommit,
    RegisteredSnapshot,
)
from fluss.lake.tables.interface.offsets import load_offsets
from fluss.model.formats import refuse_newer
from fluss.model.paths import TableBucket

FIRST_SEQUENCE_NUMBER = 1
# The version of the table's property, which does not contain it as long as it is 1.
ROUND_VERSION = 1

Offsets = Mapping[TableBucket, int]


def last_round(table: Table, table_id: int, registered: RegisteredSnapshot | None) -> LakeCommit | None:
    """The newest snapshot with everything that was tiered from this Fluss table, and its offsets. Commits of others
    are skipped if the round before them still exists. Code 53 if the lake has less than is registered."""
    if registered is not None and registered.table_id != table_id:
        registered = None
    history = list(ancestors_of(table.current_snapshot(), table.metadata))
    found = _in_history(table, history, table_id, registered) or _expired(table, history, table_id, registered)
    if registered is not None:
        _check_nothing_is_lost(table, found, registered)
    return found


def round_property(sequence_number: int, offsets: str) -> str:
    """The value of the table's property; `offsets` is the document or the address of a file with it."""
    return json.dumps({"sequence_number": sequence_number, "offsets": offsets})


def kept_round(table: Table) -> tuple[int, str] | None:
    """Sequence number and offsets in the table's property, None if nothing was tiered yet."""
    text = table.properties.get(LAST_ROUND_PROPERTY)
    if text is None:
        return None
    try:
        kept = json.loads(text)
        what = f"property {LAST_ROUND_PROPERTY!r} of lake table {_shown(table)}"
        refuse_newer(what, kept.get("version", ROUND_VERSION), ROUND_VERSION, ErrorCode.CORRUPT_MESSAGE)
        return int(kept["sequence_number"]), str(kept["offsets"])
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise FlussError(
            f"property {LAST_ROUND_PROPERTY!r} of lake table {_shown(table)} is damaged: {error!r} in {text[:200]!r}",
            ErrorCode.CORRUPT_MESSAGE,
        ) from None


def _in_history(
    table: Table, history: Sequence[Snapshot], table_id: int, registered: RegisteredSnapshot | None
) -> LakeCommit | None:
    for snapshot in history:
        properties = properties_of(snapshot)
        offsets: Offsets | None = None
        known = (
            registered.offsets if registered is not None and registered.snapshot_id == snapshot.snapshot_id else None
        )
        try:
            offsets = _offsets_of(table, properties, table_id)
        except FlussError as error:
            if known is None:  # skipping it would tier its rows again
                raise FlussError(
                    f"snapshot {snapshot.snapshot_id} of lake table {_shown(table)} was tiered from this table, is not "
                    f"registered, and its offsets cannot be read: {error.message}. Make them readable from here, and "
                    "tier again",
                    error.error_code,
                ) from error
        offsets = known if offsets is None else offsets
        if offsets is not None:
            return LakeCommit(snapshot.snapshot_id, snapshot.timestamp_ms, offsets, properties)
    return None


def _offsets_of(table: Table, properties: Mapping[str, str], table_id: int) -> Offsets | None:
    """The offsets of a round of this Fluss table; None if the snapshot is something else."""
    if properties.get(COMMIT_USER_PROPERTY) != COMMIT_USER:
        return None
    kept = properties.get(OFFSETS_PROPERTY)
    if kept is None:
        kept = properties.get(OFFSETS_PATH_PROPERTY)
        # The file of an earlier table of this name was removed with it; its directory ends with the table's id.
        if kept is None or f"-{table_id}/" not in kept:
            return None
    return _read_offsets(table, kept, table_id)


def _expired(
    table: Table, history: Sequence[Snapshot], table_id: int, registered: RegisteredSnapshot | None
) -> LakeCommit | None:
    """The newest known offsets, if all rounds have expired and only snapshots of other programs are left.

    These have the same rows in other files. Sequence numbers show that snapshots have expired: they start at 1, grow
    with every snapshot, and do not change.
    """
    oldest = history[-1].sequence_number or 0 if history else 0
    kept = kept_round(table)
    if oldest <= FIRST_SEQUENCE_NUMBER or (kept is not None and kept[0] >= oldest):
        return None  # nothing has expired, or the table was rolled back to before its newest round
    offsets: dict[TableBucket, int] = {}
    if kept is not None:
        offsets.update(_read_offsets(table, kept[1], table_id) or {})
    if registered is not None:
        for bucket, offset in registered.offsets.items():
            offsets[bucket] = max(offset, offsets.get(bucket, 0))
    if not offsets:
        return None
    newest = history[0]
    return LakeCommit(newest.snapshot_id, newest.timestamp_ms, offsets, properties_of(newest))


def _read_offsets(table: Table, kept: str, table_id: int) -> Offsets | None:
    """The offsets of a document, or None if it belongs to an earlier table of this name."""
    with catalog_errors(f"reading the offsets {kept[:200]}"):
        text: str | bytes = kept
        if not kept.startswith("{"):
            with table.io.new_input(kept).open() as stream:
                text = stream.read()
        of_table, offsets = load_offsets(text)
    return offsets if of_table == table_id else None


def _check_nothing_is_lost(table: Table, found: LakeCommit | None, registered: RegisteredSnapshot) -> None:
    shown: Offsets = {} if found is None else found.offsets
    for bucket, offset in registered.offsets.items():
        if shown.get(bucket, 0) < offset:
            where = f"bucket {bucket.bucket_id}"
            where += "" if bucket.partition_id is None else f" of partition id {bucket.partition_id}"
            has = "no round of this table" if found is None else f"snapshot {found.snapshot_id}"
            raise FlussError(
                f"the lake table {_shown(table)} has {has}, with {where} up to offset {shown.get(bucket, 0)}, but "
                f"snapshot {registered.snapshot_id} is registered with it up to {offset}: the lake table was rolled "
                "back or recreated. Restore it, or disable and enable the lake of the table to start with what the "
                "lake has now",
                ErrorCode.LAKE_SNAPSHOT_NOT_EXIST,
            )


def properties_of(snapshot: Snapshot) -> dict[str, str]:
    """The properties that the committer wrote into the summary, and the counts of Iceberg."""
    return {} if snapshot.summary is None else dict(snapshot.summary.additional_properties)


def _shown(table: Table) -> str:
    return ".".join(table.name())
