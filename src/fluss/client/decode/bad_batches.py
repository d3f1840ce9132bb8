"""Batches of a log that cannot be read, and scans that go on behind them.

A batch may be bad for ever: a client wrote values that its columns cannot hold, or a file was damaged. A scan then
raises at that offset every time, which is right for whoever must not lose a row. `on_bad_batch("skip")` reads on
instead, and says which offsets it has left out: the decoder makes a `BadBatch` of such a batch, it travels through the
`ReadyQueue` at its place between the rows, and is told to the user's thread when a poll comes by.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from fluss.errors import FlussError
from fluss.values.basic import TableBucket, TablePath

logger = logging.getLogger("fluss.client.scanner")  # the name that documents give


@dataclass(frozen=True)
class BadBatch:
    """A batch that a scan has left out: rows from `first_offset` to `last_offset` of a bucket.

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
    """What is done about a skipped batch where nothing else was asked for."""
    logger.warning("skipped offsets %d to %d: %s", bad.first_offset, bad.last_offset, bad.error)


def checked_rule(on_bad_batch: str, on_skipped: OnSkipped | None) -> OnSkipped | None:
    """Whom to tell of skipped batches; None if none may be skipped."""
    if on_bad_batch not in ("error", "skip"):
        raise FlussError(f"on_bad_batch is 'error' or 'skip', got {on_bad_batch!r}")
    if on_bad_batch == "error":
        if on_skipped is not None:
            raise FlussError("on_bad_batch 'error' skips nothing: a callback goes with 'skip'")
        return None
    if on_skipped is not None and not callable(on_skipped):
        raise FlussError(f"a callback for skipped batches takes a BadBatch, got {on_skipped!r}")
    return on_skipped or warn_of
