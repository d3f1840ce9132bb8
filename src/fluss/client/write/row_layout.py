"""The form of a table's rows in writers: their width in the flat list, their Arrow form, their batches by bucket.

`RowBuffer` moves rows without looking into them; forms know them. `LogRows` is the form of log tables, `kv_rows.KvRows`
that of primary-key tables. Forms may be used by several threads at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Protocol

from fluss.client.fitting import FitRules
from fluss.client.fitting.base import checked_extra_digits
from fluss.client.input.arrow_input import ArrowInput, Source
from fluss.client.input.row_columns import ColumnMaker
from fluss.client.net.metadata import ClientTable
from fluss.client.send.log_encoding import BatchEncoder, TableEncoder, log_row_format
from fluss.client.write.call_checks import WholeCheck
from fluss.client.write.routing import Buckets, Routed, Router, place_rules, required_columns
from fluss.client.write.row_function import RowRules, RowSink, make_append
from fluss.config import Config

if TYPE_CHECKING:
    import pyarrow as pa

    from fluss.client.send.acknowledgements import WriteResultHandle


class RowForm(Protocol):
    """The interface of a buffer to its rows. `width` is the number of values of a row in the flat list, `spread` the
    likely number of buckets of rows that arrive together."""

    width: int
    spread: int

    @property
    def encoder(self) -> BatchEncoder:
        """Makes batches of the rows that `route` returns."""

    def make_append(self, sink: RowSink) -> Callable[[object], WriteResultHandle]:
        """The function that checks a row and adds it to the flat list of `sink`."""

    def record_batch(self, flat: list[object]) -> pa.RecordBatch:
        """The rows of a flat list."""

    def route(self, batch: pa.RecordBatch) -> list[Routed]:
        """The rows of a record batch by partition and bucket."""


class LogRows:
    """Rows of a log table."""

    def __init__(self, table: ClientTable, config: Config, available: Buckets, extra_digits: str = "error") -> None:
        name = str(table.path)
        required = required_columns(table)
        places = place_rules(table)
        rules = FitRules(checked_extra_digits(extra_digits), log_row_format(table))
        self.width = len(table.schema.columns)
        self.arrow_input = ArrowInput(name, table.schema, required, rules, places=places)
        self.encoder: BatchEncoder = TableEncoder(table, config.writer_request_max_size)
        self._rules = RowRules(name, table.schema, required, rules, places=places)
        self._columns = ColumnMaker(table.schema)
        self._router = Router(
            table, config.writer_bucket_no_key_assigner, config.writer_batch_size, available, config.bucket_hash
        )
        self.spread = self._router.spread
        self._check = WholeCheck(self.encoder, lambda row: [row], config.writer_batch_size)

    def make_append(self, sink: RowSink) -> Callable[[object], WriteResultHandle]:
        """`append(row)`."""
        return make_append(self._rules, sink)

    def batches(self, rows: pa.Table, call: str, first_row: int = 0) -> Iterator[pa.RecordBatch]:
        """Record batches of all rows of an Arrow table or record batch, all checked before the first is returned."""
        return self.arrow_input.batches(rows, call, first_row, self._check)

    def batch(self, rows: pa.RecordBatch, first_row: int = 0) -> pa.RecordBatch:
        """A record batch of the rows of one record batch, checked."""
        made = self.arrow_input.conform(rows, Source(rows, first_row))
        self._check(made, is_all=True)
        return made

    def record_batch(self, flat: list[object]) -> pa.RecordBatch:
        """The rows of a flat list, in the table's Arrow schema."""
        return self._columns.record_batch(flat, self._rules.saw_null)

    def route(self, batch: pa.RecordBatch) -> list[Routed]:
        """Divide the rows by bucket keys, or to any bucket without."""
        return self._router.route(batch)
