"""Rows of primary-key tables: upserts, deletes, partial updates.

Writing all of them again in the same order changes nothing, except in tables that aggregate new rows (`delivery`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from fluss.spark.sessions.connection_cache import OpenTable
from fluss.spark.write.append import Batches, wanted_bytes, write_all
from fluss.spark.write.plan import WritePlan
from fluss.spark.write.rows import Changes, RowConverter, gathered

if TYPE_CHECKING:
    from fluss.client.engine.writers import UpsertWriter


def upsert(plan: WritePlan, opened: OpenTable, batches: Batches) -> int:
    """Write the rows of a task as they arrive, in order. Return how many arrived."""
    writer = upsert_writer(plan, opened)
    converter = RowConverter(plan)

    def write(batch: pa.RecordBatch) -> None:
        write_changes(plan, writer, changes_of(plan, converter, batch))

    return write_all(writer, write, gathered(batches, wanted_bytes(opened)))


def upsert_writer(plan: WritePlan, opened: OpenTable) -> UpsertWriter:
    """The client's writer for the columns of the plan."""
    is_partial = plan.options.columns is not None
    columns = plan.target.names if is_partial else _all_but_automatic(opened)
    return opened.table.new_upsert(columns).create_writer(on_extra_digits=plan.options.write.on_extra_digits)


def _all_but_automatic(opened: OpenTable) -> list[str] | None:
    """All columns but the auto-increment ones; None, which means all, if the table has no auto-increment column."""
    automatic = opened.info.get_schema().get_auto_increment_columns()
    return [name for name in opened.info.get_column_names() if name not in automatic] if automatic else None


def changes_of(plan: WritePlan, converter: RowConverter, batch: pa.RecordBatch) -> Changes:
    """Convert a batch of Spark to rows of the table, and state which of them delete."""
    if plan.kind == "changes":
        return converter.changes(batch)
    if plan.kind == "deletes":
        return Changes(keys := converter.keys(batch), pa.repeat(True, keys.num_rows))
    return Changes(rows := converter.rows(batch), pa.repeat(False, rows.num_rows))


def write_changes(plan: WritePlan, writer: UpsertWriter, changes: Changes) -> None:
    """Pass the upserts and the deletes of a batch to the writer."""
    if plan.kind == "deletes":
        writer.delete_arrow(changes.rows)
    elif plan.kind == "changes":
        writer.change_arrow(*changes)
    else:
        writer.upsert_arrow(changes.rows)
