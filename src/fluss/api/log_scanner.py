"""The blocking scanner of `fluss`: its calls block the calling thread, even in a coroutine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from fluss.api.base_scanner import BaseLogScanner, pandas_of, polars_of
from fluss.client.decode.materialize import ScanRecord
from fluss.client.scan.records import RecordBatch, ScanRecords

if TYPE_CHECKING:
    import pyarrow as pa

# How long an iteration waits for rows in one poll; it polls again when none have arrived.
ITERATION_POLL_MS = 60_000


class LogScanner(BaseLogScanner):
    """Reads a log as it grows: `subscribe`, then `poll` repeatedly, or `to_arrow` for all rows up to now.

    >>> scanner = await table.new_scan().create_record_batch_log_scanner()   # doctest: +SKIP
    >>> scanner.subscribe_all()                                               # doctest: +SKIP
    >>> rows = scanner.to_arrow()                                             # doctest: +SKIP
    """

    def poll(self, timeout_ms: int) -> ScanRecords:
        """Records that are available, or the first to arrive within `timeout_ms`; empty if none do."""
        self._need_records()
        return ScanRecords(self._core.poll(self._max_poll_records, timeout_ms))

    def poll_record_batch(self, timeout_ms: int) -> list[RecordBatch]:
        """Arrow batches with their bucket and offsets; empty if none arrive within `timeout_ms`."""
        self._need_batches("poll_record_batch")
        return [RecordBatch(rows) for rows in self._core.poll(None, timeout_ms)]

    def poll_batches(self, timeout_ms: int) -> list[RecordBatch]:
        """Alias of `poll_record_batch(timeout_ms)`."""
        return self.poll_record_batch(timeout_ms)

    def poll_arrow(self, timeout_ms: int) -> pa.Table:
        """A `pyarrow.Table` of the available rows; it is empty if none arrive within `timeout_ms`."""
        self._need_batches("poll_arrow")
        return self._table_of([rows.rows for rows in self._core.poll(None, timeout_ms)])

    def to_arrow(self) -> pa.Table:
        """All rows from the current positions up to the latest offsets at the time of the call, as a `pyarrow.Table`.

        Rows that have expired from the log are read from the lake of the table. If the call fails or is interrupted,
        the positions are restored: calling it again loses nothing.
        """
        self._need_batches("to_arrow")
        with self._all_or_nothing():
            older = self._go_on(self._history())
            subscriptions = self._core.session.run(self._begin_bounded())
            return self._table_of(list(self._bounded_batches(older, subscriptions)))

    def to_pandas(self) -> Any:
        """The rows of `to_arrow` as a `pandas.DataFrame`."""
        return pandas_of(self.to_arrow())

    def to_polars(self) -> Any:
        """The rows of `to_arrow` as a `polars.DataFrame`."""
        return polars_of(self.to_arrow())

    def __iter__(self) -> Iterator[ScanRecord | RecordBatch]:
        """Records, or Arrow batches, without end; after a `break` the scanner continues with the next one."""
        core = self._core
        while True:
            if self._records:
                yield from core.unread.records(core.poll(self._max_poll_records, ITERATION_POLL_MS))
            else:
                yield from core.unread.batches(core.poll(None, ITERATION_POLL_MS))
