"""What the commit thread tells the loop about a group: which appends are written, committed, failed.

`stop_after_defect` is for the commit thread, the others run in the loop. Buckets are told one by one: what goes wrong
with one of them, for lack of memory for instance, must not keep the appends of the others without an answer.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from fluss.errors import ErrorCode, FlussError
from fluss.server.storage.log.append import Append
from fluss.server.storage.log.log_writer import WriteFailure

if TYPE_CHECKING:
    from fluss.server.storage.log.bucket_log import BucketLog

_logger = logging.getLogger(__name__)


def stop_after_defect(log: BucketLog, what: str, error: Exception, first: Append | None) -> WriteFailure:
    """A defect must not take the thread, and with it every bucket, down: it stops the bucket that it hit."""
    log.writer.stopped = True
    _logger.error("%s a bucket log failed", what, exc_info=error)
    text = f"{what} failed: {error!r}; the bucket takes no more writes until the server is restarted"
    return WriteFailure(FlussError(text, ErrorCode.STORAGE_EXCEPTION), first, True)


def report_written(written: list[tuple[BucketLog, list[Append]]]) -> None:
    """These appends are in the page cache."""
    for _, appends in written:
        for append in appends:
            append.settle_written()


def show(log: BucketLog, appends: list[Append], synced: bool) -> None:
    """These appends of a bucket are committed."""
    try:
        log.on_committed(appends, synced)
    except Exception as error:
        failure = stop_after_defect(log, "showing appends of", error, None)
        for append in appends:
            append.fail(failure.error)  # a no-op for those that were acknowledged
        log.on_failed(failure)


def report(
    written: list[tuple[BucketLog, list[Append]]], failures: list[tuple[BucketLog, WriteFailure]], synced: bool
) -> None:
    """These appends are committed, and these buckets have failed."""
    for log, appends in written:
        if log.held is None or not log.held.holds_committed(appends, synced):
            show(log, appends, synced)
    for log, failure in failures:
        try:
            log.on_failed(failure)
        except Exception:
            _logger.exception("taking back appends of a bucket log failed")
