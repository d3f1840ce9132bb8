"""The awaitable scanners of `fluss.aio`, with the interface of pyfluss 1.0. Other tasks run while a call waits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from fluss.api.base_scanner import BaseLogScanner, pandas_of, polars_of
from fluss.api.limit_scan import BaseBatchScanner
from fluss.api.log_scanner import ITERATION_POLL_MS
from fluss.client.decode.decode_pool import decode_pool
from fluss.client.decode.materialize import ScanRecord
from fluss.client.scan.records import RecordBatch, ScanRecords
from fluss.errors import FlussError

if TYPE_CHECKING:
    import pyarrow as pa


class AioLogScanner(BaseLogScanner):
    """Reads a log as it grows; `async for` iterates without end."""

    async def poll(self, timeout_ms: int) -> ScanRecords:
        """Records that are available, or the first to arrive within `timeout_ms`; empty if none do."""
        self._need_records()
        return ScanRecords(await self._core.poll_async(self._max_poll_records, timeout_ms))

    async def poll_record_batch(self, timeout_ms: int) -> list[RecordBatch]:
        """Arrow batches with their bucket and offsets; empty if none arrive within `timeout_ms`."""
        self._need_batches("poll_record_batch")
        return [RecordBatch(rows) for rows in await self._core.poll_async(None, timeout_ms)]

    async def poll_batches(self, timeout_ms: int) -> list[RecordBatch]:
        """Alias of `poll_record_batch(timeout_ms)`."""
        return await self.poll_record_batch(timeout_ms)

    async def poll_arrow(self, timeout_ms: int) -> pa.Table:
        """A `pyarrow.Table` of the available rows; it is empty if none arrive within `timeout_ms`."""
        self._need_batches("poll_arrow")
        return self._table_of([rows.rows for rows in await self._core.poll_async(None, timeout_ms)])

    async def to_arrow(self) -> pa.Table:
        """All rows from the current positions up to the latest offsets at the time of the call, as a `pyarrow.Table`.

        Rows that have expired from the log are read from the lake of the table. If the call fails or is cancelled, the
        positions are restored: calling it again loses nothing.
        """
        self._need_batches("to_arrow")
        with self._all_or_nothing():
            loop = asyncio.get_running_loop()
            batches = self._go_on(await loop.run_in_executor(None, self._history)) if self._reads_lake else []
            while True:
                subscriptions = await self._core.session.awaitable(self._begin_bounded())
                try:
                    while (taken := await self._core.next_bounded_async(subscriptions)) is not None:
                        batches += [rows.rows for rows in taken]
                    return self._table_of(batches)
                except FlussError as error:
                    batches += self._go_on(await loop.run_in_executor(None, self._expired_meanwhile, error))
                finally:
                    self._core.end_bounded(subscriptions)

    async def to_pandas(self) -> Any:
        """The rows of `to_arrow` as a `pandas.DataFrame`."""
        table = await self.to_arrow()
        return await asyncio.get_running_loop().run_in_executor(decode_pool(), pandas_of, table)

    async def to_polars(self) -> Any:
        """The rows of `to_arrow` as a `polars.DataFrame`."""
        table = await self.to_arrow()
        return await asyncio.get_running_loop().run_in_executor(decode_pool(), polars_of, table)

    async def __aiter__(self) -> AsyncIterator[ScanRecord | RecordBatch]:
        """Records, or Arrow batches, without end; after a `break` the scanner continues with the next one."""
        core = self._core
        while True:
            limit = self._max_poll_records if self._records else None
            taken = await core.poll_async(limit, ITERATION_POLL_MS)
            found: Any = core.unread.records(taken) if self._records else core.unread.batches(taken)
            for item in found:
                yield item


class AioBatchScanner(BaseBatchScanner):
    """Reads up to `limit` rows of one bucket, once; see `fluss.BatchScanner`."""

    async def next_batch(self) -> RecordBatch | None:
        """The rows on the first call, then None."""
        if not self._is_spent():
            await self._session.awaitable(self._scan())
        return self._told()

    async def collect_all_batches(self) -> list[RecordBatch]:
        """All remaining rows: one batch or none."""
        batch = await self.next_batch()
        return [] if batch is None else [batch]

    async def to_arrow(self) -> pa.Table:
        """All remaining rows as a `pyarrow.Table`."""
        return self._table_of(await self.collect_all_batches())

    async def to_pandas(self) -> Any:
        """All remaining rows as a `pandas.DataFrame`."""
        return pandas_of(await self.to_arrow())
