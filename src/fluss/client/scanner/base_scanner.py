"""What the blocking and the awaitable scanner share: everything that does not wait for rows."""

from __future__ import annotations

import contextlib
import datetime
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any

import pyarrow as pa

from fluss.client.blocks import EndsWithAnyBlock
from fluss.client.metadata import ClientTable
from fluss.client.scan_plan import Everything, ScanPlan
from fluss.client.scanner.core import ScannerCore
from fluss.client.scanner.subscription import Subscription
from fluss.client.session import Session
from fluss.client.values import EARLIEST_OFFSET, TableBucket
from fluss.errors import ErrorCode, FlussError


class BaseLogScanner(EndsWithAnyBlock):
    """Subscriptions and results. `records` tells whether `poll()` or the Arrow calls work on it."""

    def __init__(self, session: Session, table: ClientTable, plan: ScanPlan, *, records: bool) -> None:
        if not records and table.has_primary_key:
            raise FlussError(
                f"table {table.path} has a primary key: Arrow batches carry no change types; "
                "read its changelog with create_log_scanner()"
            )
        self._core = ScannerCore(session, table, plan)
        self._plan = plan
        self._reads_lake = table.has_lake and not table.has_primary_key
        self._everything: Everything | None = None
        self._records = records
        self._max_poll_records = session.config.scanner_log_max_poll_records
        # A dropped scanner must not go on fetching.
        weakref.finalize(self, _close_soon, self._core).atexit = False

    # ---- subscriptions ----

    def subscribe(self, bucket_id: int, start_offset: int) -> None:
        """Read a bucket from an offset on, `EARLIEST_OFFSET` or `LATEST_OFFSET`; subscribing again moves there."""
        self._core.check_partitioning(partitioned=False)
        self._core.subscribe({self._core.bucket(None, bucket_id): start_offset})

    def subscribe_buckets(self, bucket_offsets: Mapping[int, int]) -> None:
        """Read several buckets: `{bucket_id: start_offset}`."""
        self._core.check_partitioning(partitioned=False)
        self._core.subscribe({self._core.bucket(None, key): offset for key, offset in bucket_offsets.items()})

    def subscribe_partition(self, partition_id: int, bucket_id: int, start_offset: int) -> None:
        """Read a bucket of a partition. Code 36 if the partition does not exist."""
        self._core.check_partitioning(partitioned=True)
        self._core.subscribe({self._core.bucket(partition_id, bucket_id): start_offset})

    def subscribe_partition_buckets(self, partition_bucket_offsets: Mapping[tuple[int, int], int]) -> None:
        """Read several buckets of partitions: `{(partition_id, bucket_id): start_offset}`."""
        self._core.check_partitioning(partitioned=True)
        self._core.subscribe({self._core.bucket(*key): offset for key, offset in partition_bucket_offsets.items()})

    def subscribe_all(self, start_offset: int = EARLIEST_OFFSET) -> None:
        """Read every bucket, of every partition that exists now."""
        self._core.subscribe_all(start_offset)
        self._everything = Everything() if start_offset == EARLIEST_OFFSET else None

    def from_timestamp(self, timestamp: int | datetime.datetime) -> None:
        """Read every bucket from the first row at or after a time: milliseconds since 1970, or an aware datetime."""
        if isinstance(timestamp, datetime.datetime):
            if timestamp.tzinfo is None:
                raise FlussError(f"a datetime needs a time zone here, got {timestamp!r}")
            timestamp = int(timestamp.timestamp() * 1000)
        if isinstance(timestamp, bool) or not isinstance(timestamp, int):
            raise FlussError(f"a timestamp is a whole number of milliseconds or a datetime, got {timestamp!r}")
        self._core.subscribe_from(timestamp)
        self._everything = Everything(timestamp)

    def unsubscribe(self, bucket_id: int) -> None:
        """Stop reading a bucket; its rows that were not polled yet are forgotten."""
        if self._core.table.is_partitioned:
            raise FlussError("the table is partitioned: use unsubscribe_partition(partition_id, bucket_id)")
        self._core.unsubscribe(TableBucket(self._core.table.table_id, bucket_id))

    def unsubscribe_partition(self, partition_id: int, bucket_id: int) -> None:
        """Stop reading a bucket of a partition."""
        self._core.check_partitioning(partitioned=True)
        self._core.unsubscribe(TableBucket.with_partition(self._core.table.table_id, partition_id, bucket_id))

    def get_subscribed_buckets(self) -> list[tuple[TableBucket, int]]:
        """The subscribed buckets, each with the offset of the next row that a poll will return."""
        return self._core.positions()

    # ---- results ----

    @property
    def arrow_schema(self) -> Any:
        """The `pyarrow.Schema` of the rows."""
        return self._core.decoder.output_schema

    def to_arrow_batch_reader(self) -> Any:
        """A `pyarrow.RecordBatchReader` up to the latest offsets of now; it reads while it is iterated over."""
        self._need_batches("to_arrow_batch_reader")
        older: Iterable[Any] = ()
        if self._reads_lake:
            from fluss.client.table_read.lake_history import LakeHistory

            history = LakeHistory(
                self._core.session, self._core.table, self._plan, dict(self._core.positions()), self._everything
            )
            older = history.batches()
            self._go_on_at(history.moves)
        subscriptions = self._core.session.run(self._begin_bounded())
        return pa.RecordBatchReader.from_batches(self.arrow_schema, self._bounded_batches(older, subscriptions))

    def _bounded_batches(self, older: Iterable[Any], subscriptions: list[Subscription]) -> Iterator[Any]:
        while True:
            try:
                yield from older
                while (taken := self._core.next_bounded(subscriptions)) is not None:
                    for rows in taken:
                        yield rows.rows
                return
            except FlussError as error:
                older = self._expired_meanwhile(error)
            finally:
                self._core.end_bounded(subscriptions)
            subscriptions = self._core.session.run(self._begin_bounded())

    def _older(self) -> list[Any]:
        """Batches of what has expired from the log and is in the lake; the log is then read from there on. Blocks."""
        if not self._reads_lake:
            return []
        from fluss.client.table_read.lake_history import collect_history

        core = self._core
        batches, moves = collect_history(core.session, core.table, self._plan, dict(core.positions()), self._everything)
        self._go_on_at(moves)
        return batches

    def _expired_meanwhile(self, error: FlussError) -> list[Any]:
        """Batches of what has expired since the log's beginning was looked up; `error` if they are not in the lake."""
        if not self._reads_lake or error.error_code != ErrorCode.LOG_OFFSET_OUT_OF_RANGE_EXCEPTION:
            raise error
        before = self._core.positions()
        older = self._older()
        if self._core.positions() == before:
            raise error
        return older

    def _go_on_at(self, moves: Mapping[TableBucket, int]) -> None:
        if moves:
            self._core.subscribe(moves)

    async def _begin_bounded(self) -> list[Subscription]:
        """The ends of now; runs on the I/O thread. A scan of everything may have no bucket: all partitions are gone."""
        is_everything, self._everything = self._everything is not None and self._reads_lake, None
        if is_everything and not self._core.positions():
            return []
        return await self._core.begin_bounded()

    def _table_of(self, batches: Sequence[Any]) -> Any:
        """One table; rows that kept the columns they were written with are filled up with nulls."""
        schema = self.arrow_schema
        if all(batch.schema.equals(schema) for batch in batches):
            return pa.Table.from_batches(batches, schema)
        return pa.concat_tables([pa.Table.from_batches([batch]) for batch in batches], promote_options="default")

    def _need_batches(self, method: str) -> None:
        if self._records:
            raise FlussError(
                f"{method}() needs a scanner of Arrow batches: use new_scan().create_record_batch_log_scanner()"
            )

    def _need_records(self) -> None:
        if not self._records:
            raise FlussError("poll() requires a record-based scanner. Use new_scan().create_log_scanner().")

    # ---- life ----

    def close(self) -> None:
        """Stop fetching. Closing the connection does the same."""
        self._core.close()

    def _leave(self) -> None:
        self.close()

    def __repr__(self) -> str:
        kind = "records" if self._records else "batches"
        subscribed = len(self._core.positions())
        return f"{type(self).__name__}(table={self._core.table.path}, {kind}, {subscribed} buckets subscribed)"


def _close_soon(core: ScannerCore) -> None:
    """Runs wherever the garbage collector does, perhaps inside of a lock of ours: so only pass the word on."""
    with contextlib.suppress(FlussError):  # the connection is closed, and the scanner with it
        core.session.io.call_soon(core.close)


def pandas_of(table: Any) -> Any:
    """A DataFrame; an error that names the extra when pandas is not installed."""
    try:
        import_module("pandas")
    except ImportError:
        raise FlussError('to_pandas() needs pandas: pip install "flusspy[pandas]"') from None
    return table.to_pandas()


def polars_of(table: Any) -> Any:
    """A polars DataFrame; an error that names the extra when polars is not installed."""
    try:
        polars = import_module("polars")
    except ImportError:
        raise FlussError('to_polars() needs polars: pip install "flusspy[polars]"') from None
    return polars.from_arrow(table)
