"""Reports of the commit thread that wait until the rows of a primary-key bucket are in its store.

Rows are shown and acknowledged after they are stored. If that takes long, because a put has very many rows, it is done
in steps (`server.runtime.long_work`). Meanwhile all reports of the bucket wait, in order. So nothing is shown before it
is stored, and no report overtakes another.

Held appends are as durable as `log.flush` asks for, and stay in the log's `_pending`, that is, above the high
watermark; a failure of later appends does not affect them. A crash loses only the held reports: the store is behind its
changelog then, and the next start replays the rest, as always. Loop thread only.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from fluss.server.runtime.long_work import LongWork
from fluss.server.storage.log.append import Append
from fluss.server.storage.log.commit_reports import show, stop

if TYPE_CHECKING:
    from fluss.server.storage.log.bucket_log import BucketLog

_logger = logging.getLogger(__name__)


class Storing(NamedTuple):
    """Two functions of an offset: whether storing the rows of appends below it takes long, and the steps that do it."""

    takes_long: Callable[[int], bool]
    steps: Callable[[int], Iterator[None]]


class _Held(NamedTuple):
    work: Iterator[None]
    report: Callable[[], None]
    appends: list[Append]


class HeldCommits:
    """The reports of one bucket that wait until rows are in its store."""

    def __init__(self, log: BucketLog, long_work: LongWork, storing: Storing) -> None:
        self._log = log
        self._long_work = long_work
        self._storing = storing
        self._held: deque[_Held] = deque()
        self._is_working = False
        self._is_finished = False

    @property
    def append_count(self) -> int:
        """The number of held appends, which are the oldest pending ones and durable."""
        return sum([len(held.appends) for held in self._held])

    def holds_committed(self, appends: list[Append], synced: bool) -> bool:
        """Hold the report of these appends if necessary; returns False if the caller should show it now."""
        end = appends[-1].next_offset
        if not self._held and (self._is_finished or not self._storing.takes_long(end)):
            return False
        self._hold(_Held(self._storing.steps(end), partial(show, self._log, appends, synced), appends))
        return True

    def holds_synced(self, last: Append | None) -> bool:
        """Hold a report that everything up to an append is on disk; returns False if it need not wait."""
        if not self._held:
            return False
        self._hold(_Held(iter(()), partial(self._log.note_synced, last), []))
        return True

    def finish(self) -> None:
        """Store and show everything that is held now, and hold nothing from now on: the log is being closed."""
        self._is_finished = True
        while self._held:
            try:
                for _ in self._held[0].work:
                    pass
            except Exception as error:
                self._fail(error)
            else:
                self._show_oldest()

    def drop(self) -> None:
        """Discard everything that is held: the bucket is gone."""
        self._is_finished = True
        self._held.clear()

    def _hold(self, held: _Held) -> None:
        self._held.append(held)
        if not self._is_working:
            self._is_working = True
            self._long_work.start(self._steps())

    def _steps(self) -> Iterator[None]:
        while self._held:
            held = self._held[0]
            try:
                for _ in held.work:
                    yield
            except Exception as error:
                self._fail(error)
            # A report wakes readers, one of which may close the log, which finishes everything that is held.
            if self._held and self._held[0] is held:
                self._show_oldest()
            yield
        self._is_working = False

    def _show_oldest(self) -> None:
        held = self._held.popleft()
        try:
            held.report()
        except Exception:
            # Rows that were shown are answered in any case. The reports behind this one must not wait forever.
            _logger.exception("a held report of a bucket log failed")

    def _fail(self, error: Exception) -> None:
        """Stop the bucket after a defect, as it is unknown what is stored. All held appends are answered with an error.

        The next start stores their rows.
        """
        appends = [append for held in self._held for append in held.appends]
        self._held.clear()
        stop(self._log, "storing the rows of", error, appends)
