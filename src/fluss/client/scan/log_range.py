"""Offset ranges of buckets, read once: every row of `[start, stop)`, or an error that gives the reason.

Rows are fetched ahead by the I/O thread and returned as they arrive, in offset order per bucket, so that a range of any
size needs little memory. Leaders that move and servers that restart only cost time, at most `patience_seconds` without
any progress. Permanent failures, such as a dropped table or partition or expired rows, are raised at once.

A `LogRange` is used by one thread, which blocks.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from fluss.client.decode.log_rows import LogRows
from fluss.client.decode.scan_plan import ScanPlan
from fluss.client.net.context_managed import EndsWithBlock
from fluss.client.net.metadata import ClientTable
from fluss.client.net.session import Session
from fluss.client.scan.scanner_core import ScannerCore
from fluss.client.scan.subscription import Subscription
from fluss.errors import ErrorCode, FlussError
from fluss.values.basic import public_bucket

# After this long without rows, check whether the table and its partitions still exist.
LOOK_AGAIN_SECONDS = 1.0


class LogRange(EndsWithBlock):
    """The rows of `{TableBucket: (start, stop)}`; iterate over it once."""

    def __init__(
        self,
        session: Session,
        table: ClientTable,
        plan: ScanPlan,
        ranges: Mapping[Any, tuple[int, int]],
        *,
        patience_seconds: float | None = None,
    ) -> None:
        self._session = session
        self._table = table
        self._ranges = {public_bucket(bucket): range_ for bucket, range_ in ranges.items() if range_[0] < range_[1]}
        default_seconds = session.config.request_timeout_ms / 1000
        self._patience_seconds = default_seconds if patience_seconds is None else patience_seconds
        self._core = ScannerCore(session, table, plan)
        self.arrow_schema = self._core.decoder.output_schema

    def __iter__(self) -> Iterator[LogRows]:
        subscriptions = self._begin()
        try:
            yield from self._rows(subscriptions)
        finally:
            self.close()

    def _begin(self) -> list[Subscription]:
        if not self._ranges:
            return []
        self._core.subscribe({bucket: start for bucket, (start, _) in self._ranges.items()})
        return self._core.bound({bucket: stop for bucket, (_, stop) in self._ranges.items()})

    def _rows(self, subscriptions: list[Subscription]) -> Iterator[LogRows]:
        last_progress = time.monotonic()
        reached = _progress(subscriptions)
        while not _is_done(subscriptions):
            taken = self._core.take_bounded(subscriptions, LOOK_AGAIN_SECONDS)
            if taken:
                yield from taken
                last_progress = time.monotonic()  # the consumer's time does not count
                continue
            now = time.monotonic()
            if _progress(subscriptions) != reached:
                reached, last_progress = _progress(subscriptions), now
            elif not _is_done(subscriptions):
                self._check_existence(subscriptions)
                if now - last_progress >= self._patience_seconds:
                    raise self._stuck(subscriptions, now - last_progress)

    def _check_existence(self, subscriptions: list[Subscription]) -> None:
        """Raise if a partition was dropped or the table was recreated: waiting would be in vain."""
        trouble = self._core.last_trouble
        if trouble is not None and trouble.error_code not in _PERHAPS_GONE:
            return
        missing = [subscription for subscription in subscriptions if not subscription.is_finished]
        unled = [s for s in missing if self._session.cluster.leader_node(s.bucket) is None]
        if not unled:
            return
        if trouble is not None and trouble.error_code == ErrorCode.PARTITION_NOT_EXISTS:
            raise FlussError(
                f"{unled[0].bucket} of {self._table.path} was dropped while it was read, at offset "
                f"{unled[0].position}: {trouble.message}",
                ErrorCode.PARTITION_NOT_EXISTS,
            )
        try:
            found = self._session.run(self._session.cluster.table(self._table.path, fresh=True))
        except FlussError as error:
            if error.error_code == ErrorCode.TABLE_NOT_EXIST:
                raise FlussError(f"table {self._table.path} was dropped while it was read", error.error_code) from None
            return  # the cluster cannot answer now
        if found.table_id != self._table.table_id:
            raise FlussError(
                f"table {self._table.path} was dropped and created again while it was read: start the read again",
                ErrorCode.TABLE_NOT_EXIST,
            )

    def _stuck(self, subscriptions: list[Subscription], seconds: float) -> FlussError:
        waiting = next(subscription for subscription in subscriptions if not subscription.is_finished)
        trouble = self._core.last_trouble
        because = f"; the last error was: {trouble}" if trouble is not None else ""
        return FlussError(
            f"{waiting.bucket} of {self._table.path}: no rows for {seconds:.0f} s at offset {waiting.position}, but "
            f"rows up to offset {waiting.stop_offset} exist{because}",
            ErrorCode.REQUEST_TIME_OUT,
        )

    def close(self) -> None:
        """Stop fetching."""
        self._core.close()

    def _leave(self) -> None:
        self.close()


_PERHAPS_GONE = frozenset(
    {
        ErrorCode.PARTITION_NOT_EXISTS,
        ErrorCode.UNKNOWN_TABLE_OR_BUCKET_EXCEPTION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE_EXCEPTION,
    }
)


def _progress(subscriptions: list[Subscription]) -> int:
    return sum(subscription.fetch_offset for subscription in subscriptions)


def _is_done(subscriptions: list[Subscription]) -> bool:
    return all(subscription.is_finished for subscription in subscriptions)
