"""Reports of the commit thread to the loop about a group: which appends are written, committed, failed.

`stop_after_defect` may also run in the commit thread, the other functions run in the loop. Buckets are handled one by
one: if one of them fails, out of memory for instance, the appends of the others must still be answered.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from fluss.errors import ErrorCode, FlussError
from fluss.server.storage.log.append import Append
from fluss.server.storage.log.log_writer import WriteFailure

if TYPE_CHECKING:
    from fluss.server.storage.log.bucket_log import BucketLog

Written: TypeAlias = "list[tuple[BucketLog, list[Append]]]"
Failures: TypeAlias = "list[tuple[BucketLog, WriteFailure]]"

REPORTED_AT_ONCE_BUCKETS = 128
_logger = logging.getLogger(__name__)


def stop_after_defect(log: BucketLog, what: str, error: Exception, first: Append | None) -> WriteFailure:
    """Stop the bucket that a defect has hit, so that the defect does not end the thread and stop every bucket."""
    log.writer.stopped = True
    _logger.error("%s a bucket log failed", what, exc_info=error)
    text = f"{what} the bucket log failed: {error!r}; the bucket accepts no more writes until the server is restarted"
    return WriteFailure(FlussError(text, ErrorCode.STORAGE_EXCEPTION), first, True)


def report_written(written: Written) -> None:
    """Report that appends are in the page cache."""
    for _, appends in written:
        for append in appends:
            append.settle_written()


def show(log: BucketLog, appends: list[Append], synced: bool) -> None:
    """Make committed appends of a bucket readable, and acknowledge them; a defect stops the bucket."""
    try:
        log.on_committed(appends, synced)
    except Exception as error:
        stop(log, "showing appends of", error, appends)


def stop(log: BucketLog, what: str, error: Exception, appends: list[Append]) -> None:
    """Stop a bucket after a defect in the loop, and fail the appends that it has hit."""
    failure = stop_after_defect(log, what, error, None)
    for append in appends:
        append.fail(failure.error)  # no effect on appends that were acknowledged
    log.on_failed(failure)


def reports(written: Written, failures: Failures, synced: bool) -> Iterator[Callable[[], None]]:
    """Functions that report a group, to run in the loop, each for a limited number of buckets."""
    for start in range(0, len(written), REPORTED_AT_ONCE_BUCKETS):
        yield partial(report, written[start : start + REPORTED_AT_ONCE_BUCKETS], [], synced)
    if failures:
        yield partial(report, [], failures, synced)


def report(written: Written, failures: Failures, synced: bool) -> None:
    """Report committed appends and failed buckets."""
    for log, appends in written:
        try:
            is_held = log.held is not None and log.held.holds_committed(appends, synced)
        except Exception as error:
            stop(log, "storing the rows of", error, appends)
            continue
        if not is_held:
            show(log, appends, synced)
    for log, failure in failures:
        try:
            log.on_failed(failure)
        except Exception:
            _logger.exception("taking back appends of a bucket log failed")


def report_synced(synced: list[tuple[BucketLog, Append | None]], failures: Failures) -> None:
    """Report how far buckets are on disk, and which buckets have failed."""
    for log, last in synced:
        try:
            log.on_synced(last)
        except Exception:
            # The next sync reports the same again.
            _logger.exception("recording how far a bucket log is on disk failed")
    report([], failures, True)
