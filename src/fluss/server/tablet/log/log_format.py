"""Refusing ARROW batches for tables whose log has another format.

pyfluss 1.0.0 ignores `table.log.format` and sends ARROW batches to INDEXED and COMPACTED tables; Apache Fluss stores
them, and nobody can read them afterwards. No header field tells the formats apart, but the bodies do: an Arrow message
begins with the bytes ff ff ff ff, and the same place in a row format holds the positive length of the first record. So
four bytes per batch tell, and such a write fails with 15 instead of losing data. Tables with ARROW logs, which is
nearly all of them, are not looked at.
"""

from __future__ import annotations

from fluss.codec.batches.log_batch import CorruptBatch, iter_batches
from fluss.errors import ErrorCode, FlussError
from fluss.model.properties import LOG_FORMAT
from fluss.server.catalog import TableEntry
from fluss.server.tablet.log.projection_cache import ARROW_FORMAT

ARROW_CONTINUATION = b"\xff\xff\xff\xff"


class LogFormats:
    """Log formats of tables, kept with their entries."""

    def is_arrow(self, entry: TableEntry, records: memoryview) -> bool:
        """Whether the table's log is ARROW; FlussError 15 when it is not, and the records are."""
        log_format = entry.derived.get(LogFormats)
        if log_format is None:
            log_format = entry.derived[LogFormats] = str(entry.property(LOG_FORMAT))
        if log_format != ARROW_FORMAT and holds_arrow_batch(records):
            raise FlussError(
                f"{entry.path} has log format {log_format}, but the batch is ARROW and could never be read again; "
                "use a client that writes this format, or a table with 'table.log.format' = 'ARROW'",
                ErrorCode.INVALID_TABLE_EXCEPTION,
            )
        return log_format == ARROW_FORMAT


def holds_arrow_batch(records: memoryview) -> bool:
    """Whether some batch has an Arrow message where its first record should be."""
    try:
        for position, header in iter_batches(records):
            if header.record_count == 0:
                continue
            start = position + header.records_start
            if records[start : start + 4] == ARROW_CONTINUATION:
                return True
    except CorruptBatch:
        return False  # The append will say what is wrong.
    return False
