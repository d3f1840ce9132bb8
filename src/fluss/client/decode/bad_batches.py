"""Batches of a log that cannot be read, and scans that continue after them.

A batch may be permanently unreadable: a client wrote values that its columns cannot hold, or a file was damaged. A scan
then raises at that offset every time, which is right for readers that must not lose rows. `on_bad_batch("skip")`
continues instead and reports the skipped offsets: the decoder makes a `BadBatch`, which takes its place between the
rows in the `ReadyQueue` and is reported in the user's thread by a poll.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from fluss.errors import FlussError
from fluss.values.basic import TableBucket, TablePath

logger = logging.getLogger("fluss.client.scanner")  # the documented name


@dataclass(frozen=True)
class BadBatch:
    """A batch that a scan has skipped: rows from `first_offset` to `last_offset` of a bucket.

    >>> skipped = []
    >>> scan = table.new_scan().on_bad_batch("skip", skipped.append)
    """

    table_path: TablePath
    bucket: TableBucket
    first_offset: int
    last_offset: int
    error: FlussError


OnSkipped = Callable[[BadBatch], None]


def warn_of(bad: BadBatch) -> None:
    """Log a skipped batch: the default callback."""
    logger.warning("skipped offsets %d to %d: %s", bad.first_offset, bad.last_offset, bad.error)


def checked_rule(on_bad_batch: str, on_skipped: OnSkipped | None) -> OnSkipped | None:
    """The callback for skipped batches; None if none may be skipped."""
    if on_bad_batch not in ("error", "skip"):
        raise FlussError(f"on_bad_batch must be 'error' or 'skip', got {on_bad_batch!r}")
    if on_bad_batch == "error":
        if on_skipped is not None:
            raise FlussError("a callback is only allowed with on_bad_batch='skip'")
        return None
    if on_skipped is not None and not callable(on_skipped):
        raise FlussError(f"callback must be a function that takes a BadBatch, got {on_skipped!r}")
    return on_skipped or warn_of
