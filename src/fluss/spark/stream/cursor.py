"""The cursor of a streaming query (option `cursor`): its progress, kept by the server under a name.

The query itself still relies on the checkpoint. The cursor is for others: a query with a new checkpoint begins there,
and other programs can see how far the query is. It moves past a batch when Spark asks for the next one, so the rows of
the batch have been read and written. It moves at most once a second, and not before the query has read the state and
the lake files with which it begins.
"""

from __future__ import annotations

import logging
import time
from dataclasses import replace

from fluss.api.cursors import Cursor
from fluss.api.table import cursor_of
from fluss.errors import FlussError
from fluss.spark.sessions.outage_retries import is_outage
from fluss.spark.stream.offsets import StreamOffsets
from fluss.spark.stream.table_watch import ANSWER_SECONDS, TableWatch
from fluss.values.basic import TableBucket

MOVE_SECONDS = 1.0

logger = logging.getLogger(__name__)


class QueryCursor:
    """The cursor of one query, used by one thread of the driver; calls block."""

    def __init__(self, name: str, table: str, watch: TableWatch) -> None:
        self._name = name
        self._table = table
        self._watch = watch
        self._cursor: Cursor | None = None
        self._waiting: StreamOffsets | None = None
        self._moved_to: StreamOffsets | None = None
        self._moved_at = float("-inf")

    def start(self) -> StreamOffsets | None:
        """The offsets at which a query without a checkpoint begins; None if there is no such cursor yet.

        Buckets that the cursor does not contain are newer, and are read from their beginning.
        """
        found = self._watch.opened.run(self._opened().load(), ANSWER_SECONDS)
        if found is None:
            return None
        self._watch.look(now=True)
        table_id = self._watch.table_id
        positions = {
            key: found.get(TableBucket.with_partition(table_id, *key), offset)
            for key, offset in self._watch.earliest().items()
        }
        return StreamOffsets(table_id, positions, is_initial=True)

    def reached(self, offsets: StreamOffsets, *, at_once: bool) -> None:
        """Record that all rows before these offsets are done; `at_once` does not wait for the interval."""
        is_underway = offsets.is_initial or offsets.unread_state or offsets.lake is not None
        if is_underway or offsets.table_id != self._watch.table_id:  # the planner raises an error for a recreated table
            return
        place = replace(offsets, behind=frozenset(), begin=None, since_ms=None)
        if place != self._moved_to:
            self._waiting = place
        if at_once or time.monotonic() - self._moved_at >= MOVE_SECONDS:
            self._move()

    def close(self) -> None:
        """Move the cursor to the last position, if the server answers."""
        try:
            self._move()
        except FlussError as error:
            logger.warning("cursor %s of %s was not moved to the last position: %s", self._name, self._table, error)

    def _move(self) -> None:
        place = self._waiting
        if place is None:
            return
        buckets = {TableBucket.with_partition(place.table_id, *key): at for key, at in place.positions.items()}
        try:
            self._watch.opened.run(self._opened().move(buckets), ANSWER_SECONDS)
        except FlussError as error:
            if not is_outage(error):
                raise
            return  # the next move will cover it
        finally:
            self._moved_at = time.monotonic()
        self._moved_to, self._waiting = place, None

    def _opened(self) -> Cursor:
        if self._cursor is None:
            opened = self._watch.opened
            self._cursor = cursor_of(opened.table, self._name)
        return self._cursor
