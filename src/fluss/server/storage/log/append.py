"""One accepted append on its way to the disk.

States: queued -> written (in the page cache) -> committed (as durable as `log.flush` asks for, below the high
watermark), or failed from either of the first two. All changes happen in the loop thread. Each callback runs once, in
the loop thread; one that is added after the event runs at once. `release` returns the buffer and is called once, as
soon as the bytes are written or have failed.

The commit thread reads `segment`, `position`, `buffer`, `size` and `epoch` and changes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from fluss.errors import FlussError
from fluss.server.storage.log.index import IndexMark

if TYPE_CHECKING:
    from fluss.server.storage.log.bucket_log import BucketLog
    from fluss.server.storage.log.segment import Segment

AppendCallback: TypeAlias = Callable[[FlussError | None], None]

_logger = logging.getLogger(__name__)


class Append:
    """The offsets of appended batches, and callbacks for the result. Base offset -1 if there was nothing to append."""

    __slots__ = (
        "_committed_callbacks",
        "_written_callbacks",
        "base_offset",
        "buffer",
        "committed",
        "duplicate",
        "epoch",
        "error",
        "last_offset",
        "log",
        "mark",
        "position",
        "release",
        "segment",
        "size",
        "timestamp",
        "written",
    )

    def __init__(self, log: BucketLog, base_offset: int, last_offset: int, duplicate: bool = False) -> None:
        self.log = log
        self.base_offset = base_offset
        self.last_offset = last_offset
        self.duplicate = duplicate
        self.written = False
        self.committed = False
        self.error: FlussError | None = None
        self._written_callbacks: list[AppendCallback] | None = None
        self._committed_callbacks: list[AppendCallback] | None = None
        self.size = 0
        self.position = 0
        self.timestamp = 0
        self.epoch = 0
        self.buffer: memoryview | None = None
        self.release: Callable[[], None] | None = None
        self.segment: Segment | None = None
        self.mark: IndexMark | None = None

    @property
    def next_offset(self) -> int:
        return self.last_offset + 1

    def add_written(self, callback: AppendCallback) -> None:
        """Call back when the bytes are in the page cache (acks 0 and 1), or with the error."""
        if self.written or self.committed or self.error is not None:
            _call(callback, self.error)
            return
        self.log.committer.expect_written()
        if self._written_callbacks is None:
            self._written_callbacks = [callback]
        else:
            self._written_callbacks.append(callback)

    def add_durable(self, callback: AppendCallback) -> None:
        """Call back when the rows are as durable as `log.flush` promises and readable (acks -1), or with the error."""
        if self.committed or self.error is not None:
            _call(callback, self.error)
        elif self._committed_callbacks is None:
            self._committed_callbacks = [callback]
        else:
            self._committed_callbacks.append(callback)

    def settle_written(self) -> None:
        if self.written or self.error is not None:
            return
        self.written = True
        self._finish_buffer()
        self._run_written()

    def settle_committed(self) -> None:
        if self.committed or self.error is not None:
            return
        self.committed = True
        if not self.written:
            self.settle_written()
        callbacks, self._committed_callbacks = self._committed_callbacks, None
        if callbacks is not None:
            for callback in callbacks:
                _call(callback, None)

    def fail(self, error: FlussError) -> None:
        if self.committed or self.error is not None:
            return
        self.error = error
        self._finish_buffer()
        self._run_written()
        callbacks, self._committed_callbacks = self._committed_callbacks, None
        for callback in callbacks or ():
            _call(callback, error)

    def follow(self, original: Append) -> None:
        """Settle together with another append; for a repeated batch whose original is not committed yet."""

        def settle_written(error: FlussError | None) -> None:
            if error is None:
                self.settle_written()

        def settle_committed(error: FlussError | None) -> None:
            if error is None:
                self.settle_committed()
            else:
                self.fail(error)

        original.add_written(settle_written)
        original.add_durable(settle_committed)

    def _run_written(self) -> None:
        callbacks, self._written_callbacks = self._written_callbacks, None
        if callbacks is not None:
            self.log.committer.written_answered(len(callbacks))
            for callback in callbacks:
                _call(callback, self.error)

    def _finish_buffer(self) -> None:
        release, self.release = self.release, None
        self.buffer = None
        if release is not None:
            self.log.committer.release_queued(self.size)
            release()


def settled(append: Append) -> Append:
    """Mark an append as written and committed, and return it."""
    append.written = append.committed = True
    return append


def _call(callback: AppendCallback, error: FlussError | None) -> None:
    try:
        callback(error)
    except Exception:
        # A failing callback must not keep the others from being called.
        _logger.exception("a callback of an append failed")


def run_listener(listener: Callable[[], None]) -> None:
    """Call a listener for new rows; its errors are logged."""
    try:
        listener()
    except Exception:
        # A failing reader must not keep the others from their rows.
        _logger.exception("a high watermark listener failed")
