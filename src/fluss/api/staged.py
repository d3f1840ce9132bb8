"""Staged appends: rows of many tasks that become visible with one commit, exactly once, whichever process dies.

    appender = StagedAppender(table, "query-7", batch_id=3)        # in every task
    appender.write_arrow_batch(batch)
    attempt = appender.finish()                                    # picklable: send it to the driver

    commit_staged(table, "query-7", 3, [attempt, ...])             # in the driver

A *transaction* is a name for a series of commits to one table, such as the id of a streaming query; the *batch id*
counts them. A batch id is committed at most once: a driver that repeats a batch after a crash, or an old driver that
is still alive, gets False and its rows are dropped. Each task attempt stages on its own. Only the attempts named in
the commit count, so a task may be retried or run twice.

Only log tables of this project's server have staged appends (`supports_staging`). All calls block the calling thread
and have a deadline; none may be made in the thread of an event loop. Every request is retried over lost connections and
restarts of the server until the deadline, and the server recognises repeated requests.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fluss.api.connection import BaseConnection, session_of
from fluss.api.table import BaseTable, parts_of
from fluss.client.fitting import ExtraDigits
from fluss.client.net.context_managed import EndsWithBlock
from fluss.client.net.session import Session
from fluss.client.send.acknowledgements import PendingResult
from fluss.client.two_phase import commit_calls
from fluss.client.two_phase.staging_sender import StagingSender
from fluss.client.write.row_buffer import RowBuffer
from fluss.client.write.row_layout import LogRows
from fluss.errors import ErrorCode, FlussError
from fluss.model.paths import TableBucket

if TYPE_CHECKING:
    import pyarrow as pa

DEFAULT_TIMEOUT_SECONDS = 600.0
ABORT_TIMEOUT_SECONDS = 10.0
MAX_TRANSACTION_NAME_BYTES = 512

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class StagedBucket:
    """The rows that an attempt has staged in one bucket."""

    partition_id: int | None
    bucket_id: int
    batch_count: int
    size_bytes: int


@dataclass(frozen=True)
class StagedAttempt:
    """The rows that one task attempt has staged. It can be pickled; a commit needs nothing else of the task.

    `writer_id` is None and `buckets` empty when the task had no rows.
    """

    table_id: int
    transaction: str
    batch_id: int
    writer_id: int | None
    row_count: int
    buckets: tuple[StagedBucket, ...]


class StagedAppender(EndsWithBlock):
    """Stages rows for one batch of a transaction; one per task attempt, used by one thread.

    >>> with StagedAppender(table, "job-1", 0) as appender:      # doctest: +SKIP
    ...     appender.write_arrow_batch(batch)
    ...     attempt = appender.finish()

    Leaving the block without `finish` removes the staged rows. `on_extra_digits="truncate"` cuts off digits that a
    column cannot hold, as for other writers.
    """

    def __init__(
        self, table: BaseTable, transaction: str, batch_id: int, *, on_extra_digits: ExtraDigits = "error"
    ) -> None:
        _check_identity(table, transaction, batch_id)
        self._session, self._table = parts_of(table)
        self._transaction = transaction
        self._batch_id = batch_id
        self._session.check_open()
        self._sender = StagingSender(self._session.cluster, transaction, batch_id)
        self._session.add_close_hook(self._sender.close)
        self._buffer = RowBuffer(self._session.io, self._sender, self._table, digits=on_extra_digits)
        assert isinstance(self._buffer.form, LogRows)
        self._form = self._buffer.form
        self._row_count = 0
        self._is_over = False
        self._failure: FlussError | None = None

    def write_arrow_batch(self, batch: pa.RecordBatch) -> None:
        """Stage all rows of a record batch, of any partition and bucket.

        Returns at once, or waits for room while `writer.buffer.memory-size` bytes are in flight. If earlier rows could
        not be staged, raises their error: the attempt has failed.
        """
        self._stage(lambda: [self._form.batch(batch)])

    def write_arrow(self, table: pa.Table) -> None:
        """Stage all rows of a pyarrow Table."""
        self._stage(lambda: self._form.batches(table, "write_arrow"))

    def _stage(self, make: Callable[[], Iterable[pa.RecordBatch]]) -> None:
        self._check_going_on()
        try:
            for batch in make():
                self._buffer.write_batch(batch)
                self._row_count += batch.num_rows
        except BaseException as error:
            # A caller that ignores the error must not be able to commit an attempt that lacks rows.
            self._failure = error if isinstance(error, FlussError) else FlussError(repr(error))
            raise

    def finish(self, timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS) -> StagedAttempt:
        """Wait until everything is staged; return the attempt for the commit. No rows can be added afterwards."""
        try:
            self._check_going_on()
            PendingResult(self._buffer.begin_flush(), "finish()").result(timeout_seconds)
            self._check_going_on()
        except BaseException:
            self.abort()
            raise
        self._end(FlussError("the staged attempt is finished; create a new StagedAppender to write more"))
        staged = sorted(self._sender.staged.items(), key=lambda item: (item[0].partition_id or 0, item[0].bucket_id))
        return StagedAttempt(
            self._table.table_id,
            self._transaction,
            self._batch_id,
            self._sender.writer_id if staged else None,
            self._row_count,
            tuple(StagedBucket(bucket.partition_id, bucket.bucket_id, *counts) for bucket, counts in staged),
        )

    def abort(self) -> None:
        """Give up the attempt. Its staged rows are removed if the server can be reached now; otherwise they expire."""
        if self._is_over:
            return
        error = FlussError("the staged attempt was aborted")
        self._end(error)
        if self._session.is_closed:
            return
        self._session.io.call_soon(self._sender.fail, error)
        writer_id = self._sender.writer_id
        if writer_id is not None:
            _abort(self._session, self._table.table_id, self._transaction, self._batch_id, [writer_id])

    def _check_going_on(self) -> None:
        if self._is_over:
            raise FlussError("the staged attempt has ended; create a new StagedAppender to write more")
        failure = self._failure or self._sender.failure
        if failure is not None:
            raise FlussError(failure.message, failure.error_code)

    def _end(self, error: FlussError) -> None:
        self._is_over = True
        self._buffer.close(error)
        self._session.remove_close_hook(self._sender.close)

    def _leave(self) -> None:
        self.abort()

    def __repr__(self) -> str:
        return f"StagedAppender({str(self._table.path)!r}, {self._transaction!r}, {self._batch_id})"


def commit_staged(
    table: BaseTable,
    transaction: str,
    batch_id: int,
    attempts: Iterable[StagedAttempt],
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
) -> bool:
    """Add the rows of these attempts to the table, once; return when they can be read.

    Returns True if this call committed the batch, and False if this batch id or a later one of the transaction was
    committed earlier; then the attempts are dropped, and the rows that were committed can be read. Attempts of a bucket
    are appended in the order given.

    Raises `FlussError` 33 if rows are no longer staged (aborted, expired, lost in a power cut), and 7 or 36 if the
    table or a partition was dropped; nothing is committed then. Code 25 means that it took too long: the server may
    still complete the commit; call this again to find out.

    >>> commit_staged(table, "query-7", 3, attempts)      # doctest: +SKIP
    True
    """
    chosen = list(attempts)
    _check_identity(table, transaction, batch_id)
    session, described = parts_of(table)
    for attempt in chosen:
        if (attempt.table_id, attempt.transaction, attempt.batch_id) != (described.table_id, transaction, batch_id):
            raise FlussError(
                f"an attempt for batch {attempt.batch_id} of {attempt.transaction!r} (table id {attempt.table_id}) "
                f"cannot be committed as batch {batch_id} of {transaction!r} to {described.path} "
                f"(table id {described.table_id})"
            )
    files = [
        commit_calls.StagedFile(
            TableBucket(attempt.table_id, bucket.partition_id, bucket.bucket_id),
            attempt.writer_id,
            bucket.batch_count,
            bucket.size_bytes,
        )
        for attempt in chosen
        if attempt.writer_id is not None
        for bucket in attempt.buckets
    ]
    commit = commit_calls.Commit(session.cluster, described, transaction, batch_id, timeout_seconds)
    accepted = session.run(commit.run(files), timeout_seconds + commit_calls.GRACE_SECONDS)
    if not accepted:
        abort_staged(table, transaction, batch_id, chosen)
    return accepted


def abort_staged(
    table: BaseTable, transaction: str, batch_id: int, attempts: Sequence[StagedAttempt] | None = None
) -> None:
    """Remove the rows staged by these attempts; without `attempts`, by all attempts of the batch.

    Committed rows stay. Does not raise if a server cannot be reached: its staged rows expire.
    """
    _check_identity(table, transaction, batch_id)
    writer_ids = [attempt.writer_id for attempt in attempts or () if attempt.writer_id is not None]
    if attempts is None or writer_ids:
        session, described = parts_of(table)
        _abort(session, described.table_id, transaction, batch_id, writer_ids)


def last_committed(table: BaseTable, transaction: str, timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS) -> int | None:
    """The last committed batch id of a transaction, None if there is none.

    >>> last_committed(table, "query-7")      # doctest: +SKIP
    3
    """
    _check_identity(table, transaction, 0)
    session, described = parts_of(table)
    commit = commit_calls.Commit(session.cluster, described, transaction, 0, timeout_seconds)
    return session.run(commit.last_batch_id(), timeout_seconds + commit_calls.GRACE_SECONDS)


def supports_staging(connection: BaseConnection, timeout_seconds: float = 60.0) -> bool:
    """True if the server has staged appends: this project's server has them, Apache Fluss does not."""
    session = session_of(connection)
    return session.run(commit_calls.is_supported(session.cluster), timeout_seconds)


def _abort(session: Session, table_id: int, transaction: str, batch_id: int, writer_ids: Sequence[int]) -> None:
    work = commit_calls.abort(session.cluster, table_id, transaction, batch_id, writer_ids)
    try:
        session.run(work, ABORT_TIMEOUT_SECONDS)
    except FlussError as error:
        logger.warning("staged rows of batch %d of %r stay until they expire: %s", batch_id, transaction, error)


def _check_identity(table: object, transaction: object, batch_id: object) -> None:
    if not isinstance(table, BaseTable):
        raise FlussError(f"table must be a FlussTable, got {type(table).__name__}")
    if table.has_primary_key():
        raise FlussError(f"table {table.table_path} has a primary key, but staged appends require a log table")
    if not isinstance(transaction, str) or not 1 <= len(transaction.encode()) <= MAX_TRANSACTION_NAME_BYTES:
        raise FlussError(
            f"transaction must be a string of 1 to {MAX_TRANSACTION_NAME_BYTES} bytes, got {transaction!r:.100}",
            ErrorCode.INVALID_PRODUCER_ID_EXCEPTION,
        )
    if isinstance(batch_id, bool) or not isinstance(batch_id, int) or not 0 <= batch_id < 2**63:
        raise FlussError(f"batch_id must be an int >= 0, got {batch_id!r}", ErrorCode.INVALID_PRODUCER_ID_EXCEPTION)
