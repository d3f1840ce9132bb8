"""Tables with a lake for tests of reads: what a read must show, in the ways that there are to read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import fluss
from fluss.api.table import access_of
from fluss.lake.reading.options import LakeOptions
from fluss.lake.reading.plan import UnionPlan, plan_union
from fluss.lake.reading.split_rows import read_union
from fluss.values.predicates import Predicate
from tests.support.lake.tiered_tables import LakeTable, Rows
from tools.waiting import wait_until

# Small segments that expire quickly where a table says so.
SERVER = {
    "log.segment.file-size": "8kb",
    "log.retention.check-interval": "50ms",
    "remote.log.task-interval-duration": "50ms",
    "kv.snapshot.interval": "200ms",
}
EXPIRING = {"table.log.ttl": "1s", "table.log.tiered.local-segments": "1"}
EXPIRY_SECONDS = 120.0


def ordered(rows: Iterable[Mapping[str, Any]]) -> Rows:
    """Rows that can be compared, whatever the order of rows and columns was."""
    return sorted((dict(row) for row in rows), key=lambda row: str(sorted(row.items(), key=str)))


def rows_of(table: LakeTable, columns: Sequence[str] | None = None, **options: Any) -> Rows:
    """What `to_arrow` shows, sorted."""
    return ordered(table.db.to_arrow(table.name, columns, **options).to_pylist())


def check_reads(
    table: LakeTable, rows: Sequence[dict[str, Any]], columns: Sequence[str] | None = None, **options: Any
) -> None:
    """Every way to read the table shows exactly these rows."""
    names = list(columns or table.db.info(table.name).get_column_names())
    wanted = ordered({name: row[name] for name in names} for row in rows)
    assert rows_of(table, columns, **options) == wanted, "the default read"
    assert rows_of(table, columns, union=True, **options) == wanted, "lake and log"


def planned(table: LakeTable, predicate: Predicate | None = None, options: LakeOptions | None = None) -> UnionPlan:
    """A plan of lake and log."""
    plan = plan_union(access_of(opened(table)), predicate=predicate, options=options or LakeOptions())
    assert plan is not None
    return plan


def read_plan(table: LakeTable, plan: UnionPlan, columns: Sequence[str] | None = None, **options: Any) -> Rows:
    """The rows of all splits, sorted."""
    access = access_of(opened(table))
    batches = [batch for split in plan.splits for batch in read_union(access, split, columns, **options)]
    return ordered(row for batch in batches for row in batch.to_pylist())


def opened(table: LakeTable) -> fluss.FlussTable:
    return asyncio.run(table.db.connection.get_table(table.name))


def drop_partition(table: LakeTable, region: str) -> None:
    async def drop() -> None:
        admin = await table.db.connection.get_admin()
        await admin.drop_partition(table.name, {"region": region})

    asyncio.run(drop())


def earliest(table: LakeTable, bucket: int = 0) -> int:
    """Where the log of a bucket begins."""

    async def ask() -> int:
        admin = await table.db.connection.get_admin()
        return (await admin.list_offsets(table.name, [bucket], fluss.OffsetSpec.earliest()))[bucket]

    return asyncio.run(ask())


def expire(table: LakeTable, write: Callable[[], None], offset: int, bucket: int = 0) -> None:
    """Write and tier until the log of a bucket begins behind `offset`; segments expire when newer ones have begun."""

    def is_expired() -> bool:
        if earliest(table, bucket) > offset:
            return True
        write()
        table.tier()
        return False

    wait_until(is_expired, f"the log of {table.name} begins behind offset {offset}", EXPIRY_SECONDS)
