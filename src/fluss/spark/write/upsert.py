"""Rows of primary-key tables: upserts, deletes, partial updates. Doing them again changes nothing."""

from __future__ import annotations

import pyarrow as pa

from fluss.spark.connecting import OpenTable
from fluss.spark.write.append import Batches, wanted_bytes, write_all
from fluss.spark.write.plan import WritePlan
from fluss.spark.write.rows import RowConverter, gathered


def upsert(plan: WritePlan, opened: OpenTable, batches: Batches) -> int:
    """Write the rows of a task in their order. Returns how many came."""
    is_partial = plan.options.columns is not None
    writer = opened.table.new_upsert(plan.target.names if is_partial else None).create_writer()
    converter = RowConverter(plan)

    def write(batch: pa.RecordBatch) -> None:
        if plan.kind == "deletes":
            writer.delete_arrow(converter.keys(batch))
        elif plan.kind == "changes":
            writer.change_arrow(*converter.changes(batch))
        else:
            writer.upsert_arrow(converter.rows(batch))

    return write_all(writer, write, gathered(batches, wanted_bytes(opened)))
