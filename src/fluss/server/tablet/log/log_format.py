"""Refusing ARROW batches for tables whose log has another format.

pyfluss 1.0.0 ignores `table.log.format` and sends ARROW batches to INDEXED and COMPACTED tables; Apache Fluss stores
them, and no client can read them afterwards. No header field has the format, but it is visible in the body: an Arrow
message begins with the bytes ff ff ff ff, while a row format has the positive length of the first record there. So four
bytes per batch are checked, and such a write fails with error 15 instead of losing data. Nearly all tables have ARROW
logs; their batches are not checked.
"""

from __future__ import annotations

from fluss.codec.batches.log_batch import CorruptBatch, iter_batches
from fluss.errors import ErrorCode, FlussError
from fluss.model.properties import LOG_FORMAT
from fluss.server.catalog import TableEntry
from fluss.server.tablet.log.projection_cache import ARROW_FORMAT

ARROW_CONTINUATION = b"\xff\xff\xff\xff"


class LogFormats:
    """The log formats of tables, cached in their entries."""

    def is_arrow(self, entry: TableEntry, records: memoryview) -> bool:
        """True if the table's log has the format ARROW; FlussError 15 for ARROW records in a log of another format."""
        log_format = entry.derived.get(LogFormats)
        if log_format is None:
            log_format = entry.derived[LogFormats] = str(entry.property(LOG_FORMAT))
        if log_format != ARROW_FORMAT and holds_arrow_batch(records):
            raise FlussError(
                f"{entry.path} has log format {log_format}, but the batch has ARROW, which no client could read; use a "
                "client that writes the table's format, or a table with 'table.log.format' = 'ARROW'",
                ErrorCode.INVALID_TABLE_EXCEPTION,
            )
        return log_format == ARROW_FORMAT


def holds_arrow_batch(records: memoryview) -> bool:
    """True if a batch has an Arrow message in place of its first record."""
    try:
        for position, header in iter_batches(records):
            if header.record_count == 0:
                continue
            start = position + header.records_start
            if records[start : start + 4] == ARROW_CONTINUATION:
                return True
    except CorruptBatch:
        return False  # The append reports the damage.
    return False
