"""Log batches of one table: with the table's format, compression and statistics, numbered when they are sent.

A batch is encoded without writer id and sequence, by the thread that has the rows. It is numbered on the I/O thread
when it is sent and the sequence is known: the same bytes get a new header with a new checksum, and nothing is copied.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

import pyarrow as pa

from fluss.client.net.metadata import ClientTable
from fluss.codec.arrow.compression import Compression
from fluss.codec.batches.arrow_batch import encode_arrow_batch
from fluss.codec.batches.log_batch import encode_header, read_header
from fluss.codec.batches.row_log_batch import encode_row_batch
from fluss.codec.batches.statistics import supports_statistics
from fluss.codec.crc import crc32c_of_pieces
from fluss.codec.rows.columns import RowFormat
from fluss.codec.rows.values import RowValueError
from fluss.errors import ErrorCode, FlussError

LOG_FORMAT_PROPERTY = "table.log.format"
STATISTICS_PROPERTY = "table.statistics.columns"
ARROW_FORMAT = "ARROW"
# The checksum covers everything after its own four bytes. (It is elsewhere in V2, which clients do not write.)
_CHECKED_FROM = 25


class BatchEncoder(ABC):
    """Encodes rows of one table as batches that fit into a request. Used by any thread.

    `target_columns` is None for log tables; for primary-key tables it goes into their requests: the columns that
    are written, empty for all of them. `max_batch_rows` is for servers whose work is per row and not per byte.
    """

    target_columns: tuple[int, ...] | None = None
    max_batch_rows: int | None = None

    def __init__(self, table: ClientTable, max_batch_bytes: int) -> None:
        self.table = table
        self.max_batch_bytes = max_batch_bytes

    @abstractmethod
    def encode(self, rows: pa.RecordBatch) -> bytes:
        """Encode one batch, not numbered."""

    @abstractmethod
    def numbered(self, data: bytes, writer_id: int, sequence: int) -> list[bytes | memoryview]:
        """The parts of a batch with writer id and sequence filled in."""

    def encode_parts(self, rows: pa.RecordBatch) -> Iterator[bytes]:
        """Encode batches that fit into a request: usually one, halves of it if it is too large."""
        data = self.encode(rows)
        if len(data) <= self.max_batch_bytes:
            yield data
            return
        if rows.num_rows == 1:
            raise FlussError(
                f"a row for table {self.table.path} takes {len(data)} bytes; writer.request-max-size allows "
                f"{self.max_batch_bytes}",
                ErrorCode.RECORD_TOO_LARGE_EXCEPTION,
            )
        half = rows.num_rows // 2
        yield from self.encode_parts(rows.slice(0, half))
        yield from self.encode_parts(rows.slice(half))


class TableEncoder(BatchEncoder):
    """Encodes record batches that have the table's Arrow schema as log batches."""

    def __init__(self, table: ClientTable, max_batch_bytes: int) -> None:
        super().__init__(table, max_batch_bytes)
        self._row_format = log_row_format(table)
        try:
            self._compression = Compression.from_properties(table.descriptor.properties)
        except ValueError as error:
            raise FlussError(f"table {table.path} cannot be written: {error}") from None
        self._statistics = statistics_columns(table) if self._row_format is None else None

    def encode(self, rows: pa.RecordBatch) -> bytes:
        """Encode one log batch, not numbered."""
        table = self.table
        try:
            if self._row_format is not None:
                return encode_row_batch(rows, table.schema, self._row_format, table.schema_id)
            return encode_arrow_batch(rows, table.schema_id, self._compression, statistics_columns=self._statistics)
        except (RowValueError, ValueError, pa.ArrowException) as error:
            raise FlussError(f"the rows do not fit table {table.path}: {error}") from None

    def numbered(self, data: bytes, writer_id: int, sequence: int) -> list[bytes | memoryview]:
        """A new header in front of the same records."""
        return numbered(data, writer_id, sequence)


def numbered(data: bytes, writer_id: int, sequence: int) -> list[bytes | memoryview]:
    """The parts of a batch with writer id and sequence filled in."""
    header = read_header(data)
    body = memoryview(data)[header.header_size :]
    unchecked = header._replace(writer_id=writer_id, batch_sequence=sequence)
    checksum = crc32c_of_pieces((encode_header(unchecked)[_CHECKED_FROM:], body))
    return [encode_header(unchecked._replace(crc=checksum)), body]


def statistics_columns(table: ClientTable) -> list[int] | None:
    """Positions of the columns whose bounds are written with every batch; None for a table without statistics."""
    setting = table.property(STATISTICS_PROPERTY)
    if setting is None or not setting.strip():
        return None
    schema = table.schema
    if setting.strip() == "*":
        columns = [index for index, data_type in enumerate(schema.data_types) if supports_statistics(data_type)]
        return columns or None
    names = [name.strip() for name in setting.split(",")]
    return [schema.position(name) for name in names if name in schema]


def log_row_format(table: ClientTable) -> RowFormat | None:
    """The row format of a log table; None for Arrow."""
    name = (table.property(LOG_FORMAT_PROPERTY) or ARROW_FORMAT).strip().upper()
    if name == ARROW_FORMAT:
        return None
    try:
        return RowFormat(name)
    except ValueError:
        text = f"table {table.path} has log format {name!r}, which this client does not support"
        raise FlussError(text, ErrorCode.INVALID_TABLE_EXCEPTION) from None
