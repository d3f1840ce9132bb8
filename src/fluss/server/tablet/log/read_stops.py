"""Up to where a connection reads: which batch a filter must not drop, so that a bounded read ends.

Theory. A bounded read of pyfluss asks for the latest offset of a bucket (LIST_OFFSETS) and polls until it sees a batch
that reaches that offset or lies behind it. It looks at batches alone, never at `filtered_end_offset`: with the last
batch dropped it would poll for ever. So each connection has a stop for every bucket that it asked an end for, and
filters keep the batch that holds the last offset before it. The highest stop is enough, because a batch behind a
reader's own stop ends that reader too. A connection that never asked for an end gets exactly what matches its filters.

After a reconnect nothing is known of what the client asked before. A connection whose first fetch of a bucket begins in
the middle of the log may go on with a bounded read: the end of the log at that moment becomes its stop. (A read that
lost its connection before its first batch cannot be told from a new one.)

All of this happens in the event loop's thread. Stops go when their connection goes.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

from fluss.model.paths import TableBucket
from fluss.server.runtime.handlers import RequestContext

# Buckets of one connection; beyond it the bucket that came first is forgotten, as after a reconnect.
MAX_STOPS_PER_CONNECTION = 10_000
NO_STOP = 0


class ConnectionStops:
    """The stops of one connection."""

    __slots__ = ("_stops",)

    def __init__(self) -> None:
        self._stops: dict[TableBucket, int] = {}

    def raise_to(self, bucket: TableBucket, offset: int) -> None:
        """The client was told this end of a bucket."""
        self._put(bucket, max(offset, self._stops.get(bucket, NO_STOP)))

    def stop(self, bucket: TableBucket, offset: int, start_offset: int, end_offset: int) -> int:
        """Up to where the connection reads a bucket, now that it fetches `offset` of a log from start to end."""
        stop = self._stops.get(bucket)
        if stop is None:
            stop = NO_STOP if offset <= start_offset else end_offset
            self._put(bucket, stop)
        return stop

    def _put(self, bucket: TableBucket, stop: int) -> None:
        self._stops[bucket] = stop
        if len(self._stops) > MAX_STOPS_PER_CONNECTION:
            del self._stops[next(iter(self._stops))]


class ReadStops:
    """The stops of all connections of a tablet."""

    def __init__(self) -> None:
        self._connections: WeakKeyDictionary[object, ConnectionStops] = WeakKeyDictionary()

    def of(self, context: RequestContext) -> ConnectionStops:
        """Those of the connection that a request came through; new ones for a request that came through none."""
        if context.connection is None:
            return ConnectionStops()
        found = self._connections.get(context.connection)
        if found is None:
            found = self._connections[context.connection] = ConnectionStops()
        return found
