"""Writing rows to the servers, and waiting for the acknowledgement of each.

All rows are acknowledged when `write_all` returns: a failed write is raised by a later write or by the flush at the
end. After a failure, writes in flight are completed first, so that the next attempt of the task does not meet rows of
this one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import pyarrow as pa

from fluss.client.engine.values import ExtraDigits
from fluss.errors import FlussError
from fluss.spark.sessions.connection_cache import OpenTable
from fluss.spark.write.plan import WritePlan
from fluss.spark.write.rows import RowConverter, gather_bytes, gathered

if TYPE_CHECKING:
    from fluss.client.engine.writers import AppendWriter, UpsertWriter

FLUSH_SECONDS = 600.0
"""How long a task waits at its end for a server that does not answer."""
SETTLE_SECONDS = 30.0
"""How long a failed attempt waits for its writes in flight."""

Batches = Iterable[pa.RecordBatch]


def append_plain(plan: WritePlan, opened: OpenTable, batches: Batches) -> int:
    """Append rows at once; they stay even if the task fails. Return the number of rows."""
    converter = RowConverter(plan)
    rows = map(converter.rows, gathered(batches, wanted_bytes(opened)))
    return append(opened, rows, extra_digits=plan.options.write.on_extra_digits)


def append(
    opened: OpenTable,
    batches: Batches,
    flush_seconds: float = FLUSH_SECONDS,
    extra_digits: ExtraDigits = "error",
) -> int:
    """Append batches that have the schema of the table. Return the number of rows."""
    writer = opened.table.new_append().create_writer(on_extra_digits=extra_digits)
    return write_all(writer, writer.write_arrow_batch, batches, flush_seconds)


def wanted_bytes(opened: OpenTable) -> int:
    """The size that record batches need so that the client can fill its own batches from them."""
    return gather_bytes(opened.info, opened.connection.config.writer_batch_size)


def write_all(
    writer: AppendWriter | UpsertWriter,
    write: Callable[[pa.RecordBatch], object],
    batches: Batches,
    flush_seconds: float = FLUSH_SECONDS,
) -> int:
    """Pass all batches to `write`, a method of the writer, and wait for their acknowledgements."""
    rows = 0
    try:
        for batch in batches:
            write(batch)
            rows += batch.num_rows
        writer.flush().result(flush_seconds)
    except BaseException:
        # The first error is the one to report; failures in this flush have the same cause.
        with contextlib.suppress(FlussError):
            writer.flush().result(SETTLE_SECONDS)
        raise
    return rows
