"""The common part of the blocking and the awaitable scanner: everything that does not wait for rows."""

from __future__ import annotations

import contextlib
import datetime
import weakref
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any

import pyarrow as pa

from fluss.client.decode.scan_plan import Everything, ScanPlan
from fluss.client.engine.engine import Engine
from fluss.client.engine.table import TableAccess
from fluss.client.net.context_managed import EndsWithAnyBlock
from fluss.client.net.metadata import ClientTable
from fluss.client.net.session import Session
from fluss.client.scan.scanner_core import ScannerCore
from fluss.client.scan.subscription import Subscription
from fluss.errors import ErrorCode, FlussError
from fluss.lazy_imports import import_lock
from fluss.values.basic import EARLIEST_OFFSET, TableBucket

History = tuple[list[pa.RecordBatch], dict[TableBucket, int]]
"""Batches from the lake, and the offsets at which the log continues after them."""


class BaseLogScanner(EndsWithAnyBlock):
    """Holds the subscriptions of a scanner and returns its rows: by `poll()` if made with `records`, else as Arrow."""

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
        self._asked_for_all = False
        self._records = records
        self._max_poll_records = session.config.scanner_log_max_poll_records
        # A scanner that was garbage collected must not continue to fetch.
        weakref.finalize(self, _close_soon, self._core).atexit = False

    # ---- subscriptions ----

    def is_partitioned(self) -> bool:
        """True if the table has partitions, so that buckets are subscribed by partition."""
        return self._core.table.is_partitioned

    def subscribe(self, bucket_id: int, start_offset: int) -> None:
        """Read a bucket from an offset, `EARLIEST_OFFSET` or `LATEST_OFFSET`. Another call moves the scanner there."""
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
        self._asked_for_all = True
        self._everything = Everything() if start_offset == EARLIEST_OFFSET else None

    def from_timestamp(self, timestamp: int | datetime.datetime) -> None:
        """Read every bucket from its first row at or after a time: milliseconds since 1970, or an aware datetime."""
        if isinstance(timestamp, datetime.datetime):
            if timestamp.tzinfo is None:
                raise FlussError(f"timestamp must have a time zone, got {timestamp!r}")
            timestamp = int(timestamp.timestamp() * 1000)
        if isinstance(timestamp, bool) or not isinstance(timestamp, int):
            raise FlussError(
                f"timestamp must be an int (milliseconds since 1970) or an aware datetime, got {timestamp!r}"
            )
        self._core.subscribe_from(timestamp)
        self._asked_for_all = True
        self._everything = Everything(timestamp)

    def unsubscribe(self, bucket_id: int) -> None:
        """Stop reading a bucket; its rows that were not polled yet are dropped."""
        if self._core.table.is_partitioned:
            raise FlussError("the table is partitioned: use unsubscribe_partition(partition_id, bucket_id)")
        self._asked_for_all = False
        self._core.unsubscribe(TableBucket(self._core.table.table_id, bucket_id))

    def unsubscribe_partition(self, partition_id: int, bucket_id: int) -> None:
        """Stop reading a bucket of a partition."""
        self._core.check_partitioning(partitioned=True)
        self._asked_for_all = False
        self._core.unsubscribe(TableBucket.with_partition(self._core.table.table_id, partition_id, bucket_id))

    def get_subscribed_buckets(self) -> list[tuple[TableBucket, int]]:
        """The subscribed buckets, each with the offset of the next row to be returned by a poll or a loop."""
        return self._core.positions()

    # ---- results ----

    @property
    def arrow_schema(self) -> pa.Schema:
        """The `pyarrow.Schema` of the rows."""
        return self._core.decoder.output_schema

    def to_arrow_batch_reader(self) -> pa.RecordBatchReader:
        """A `pyarrow.RecordBatchReader` that ends at the current latest offsets; it reads while it is iterated.

        A batch counts as read when the reader has returned it: after a break or an error the scanner continues after
        the last one. Rows that are only in the lake count as read as soon as the reader exists: the scanner does not
        return them again.
        """
        self._need_batches("to_arrow_batch_reader")
        self._core.unread.give_back()
        older: Iterable[pa.RecordBatch] = ()
        if self._reads_lake:
            with import_lock:
                from fluss.lake.reading.history import LakeHistory

            history = LakeHistory(self._access(), self._plan, dict(self._core.positions()), self._everything)
            older = history.batches()
            self._core.move(history.moves)
        subscriptions = self._core.session.run(self._begin_bounded())
        return pa.RecordBatchReader.from_batches(self.arrow_schema, self._bounded_batches(older, subscriptions))

    def _bounded_batches(
        self, older: Iterable[pa.RecordBatch], subscriptions: list[Subscription]
    ) -> Iterator[pa.RecordBatch]:
        while True:
            try:
                yield from older
                while (taken := self._core.next_bounded(subscriptions)) is not None:
                    for batch in self._core.unread.batches(taken):
                        yield batch.batch
                return
            except FlussError as error:
                older = self._go_on(self._expired_meanwhile(error))
            finally:
                self._core.end_bounded(subscriptions)
            subscriptions = self._core.session.run(self._begin_bounded())

    @contextlib.contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """Restore the positions if the block does not complete, so that a read returns all of its rows or none.

        That replaces all subscriptions: fetches that are still in flight belong to ended ones, so they are dropped.
        """
        self._core.unread.give_back()
        positions, everything = dict(self._core.positions()), self._everything
        try:
            yield
        except BaseException:  # also KeyboardInterrupt and cancellation
            self._core.move(positions)
            self._everything = everything
            raise

    def _history(self) -> History:
        """Rows that expired from the log but are in the lake, and the offsets where the log continues. Blocks."""
        if not self._reads_lake:
            return [], {}
        with import_lock:
            from fluss.lake.reading.history import collect_history

        core = self._core
        return collect_history(self._access(), self._plan, dict(core.positions()), self._everything)

    def _access(self) -> TableAccess:
        return TableAccess(Engine(self._core.session), self._core.table)

    def _expired_meanwhile(self, error: FlussError) -> History:
        """`_history` after rows expired during a read; raises `error` if the lake does not have them. Blocks."""
        if not self._reads_lake or error.error_code != ErrorCode.LOG_OFFSET_OUT_OF_RANGE_EXCEPTION:
            raise error
        batches, moves = self._history()
        before = dict(self._core.positions())
        if all(before.get(bucket) == offset for bucket, offset in moves.items()):
            raise error
        return batches, moves

    def _go_on(self, history: History) -> list[pa.RecordBatch]:
        """Return the batches of `history`, and move the subscriptions to the offsets after them."""
        batches, moves = history
        self._core.move(moves)
        return batches

    def _begin_bounded(self) -> Coroutine[Any, Any, list[Subscription]]:
        """Fix the current ends of the logs, on the I/O thread. After `subscribe_all` there may be no bucket at all."""
        self._everything = None
        if self._asked_for_all and not self._core.positions():
            return _no_buckets()
        return self._core.begin_bounded()

    def _table_of(self, batches: Sequence[pa.RecordBatch]) -> pa.Table:
        """One table of all batches. Batches that kept the columns of an older schema get nulls for the others."""
        schema = self.arrow_schema
        if all(batch.schema.equals(schema) for batch in batches):
            return pa.Table.from_batches(batches, schema)
        return pa.concat_tables([pa.Table.from_batches([batch]) for batch in batches], promote_options="default")

    def _need_batches(self, method: str) -> None:
        if self._records:
            raise FlussError(
                f"{method}() requires a scanner of Arrow batches; use new_scan().create_record_batch_log_scanner()"
            )

    def _need_records(self) -> None:
        if not self._records:
            raise FlussError("poll() requires a record-based scanner; use new_scan().create_log_scanner()")

    # ---- life ----

    def close(self) -> None:
        """Stop fetching. Closing the connection does the same."""
        self._core.close()

    def _leave(self) -> None:
        self.close()

    def __repr__(self) -> str:
        kind = "records" if self._records else "batches"
        state = "closed" if self._core.is_closed else f"{len(self._core.positions())} buckets subscribed"
        return f"{type(self).__name__}(table={self._core.table.path}, {kind}, {state})"


async def _no_buckets() -> list[Subscription]:
    return []


def core_of(scanner: BaseLogScanner) -> ScannerCore:
    """The core of a scanner: its subscriptions and fetches. Only for modules of `api`."""
    return scanner._core


def leave_lake_out(scanner: BaseLogScanner) -> None:
    """Make a scanner read only the log, even if the table has rows in a lake."""
    scanner._reads_lake = False


def _close_soon(core: ScannerCore) -> None:
    """Schedule the close. The garbage collector may call this while a lock is held, so it must not wait."""
    with contextlib.suppress(FlussError):  # the connection is closed, and the scanner with it
        core.session.io.call_soon(core.close)


def pandas_of(table: pa.Table) -> Any:
    """The rows of an Arrow table as a pandas DataFrame; if pandas is missing, the error names the extra to install."""
    try:
        import_module("pandas")
    except ImportError:
        raise FlussError('to_pandas() requires pandas: pip install "flusspy[pandas]"') from None
    return table.to_pandas()


def polars_of(table: pa.Table) -> Any:
    """The rows of an Arrow table as a polars DataFrame; if polars is missing, the error names the extra to install."""
    try:
        polars = import_module("polars")
    except ImportError:
        raise FlussError('to_polars() requires polars: pip install "flusspy[polars]"') from None
    return polars.from_arrow(table)
