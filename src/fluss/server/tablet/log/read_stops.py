"""The end offsets of a connection's bounded reads: filters must not drop the last batch, so that these reads end.

Theory. A bounded read of pyfluss asks for the latest offset of a bucket (LIST_OFFSETS) and polls until it gets a batch
that reaches that offset or is behind it. It only considers batches, never `filtered_end_offset`: if the last batch were
dropped, it would poll forever. So each connection has a stop for every bucket whose end it asked for, and filters keep
the batch with the last offset before the stop. The highest stop is enough, because a batch behind a reader's own stop
ends that reader too. A connection that never asked for an end gets exactly what matches its filters.

After a reconnect the server does not know what the client asked before. If the first fetch of a bucket on a connection
begins in the middle of the log, it may continue a bounded read: the end of the log at that moment becomes its stop. (A
read that lost its connection before its first batch cannot be distinguished from a new one.)

Event loop only. Stops are dropped with their connection.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

from fluss.model.paths import TableBucket
from fluss.server.runtime.handlers import RequestContext

# Buckets per connection; beyond this the oldest one is dropped, as after a reconnect.
MAX_STOPS_PER_CONNECTION = 10_000
NO_STOP = 0


class ConnectionStops:
    """The stops of one connection, by bucket."""

    __slots__ = ("_stops",)

    def __init__(self) -> None:
        self._stops: dict[TableBucket, int] = {}

    def raise_to(self, bucket: TableBucket, offset: int) -> None:
        """Record an end of a bucket that was sent to the client."""
        self._put(bucket, max(offset, self._stops.get(bucket, NO_STOP)))

    def stop(self, bucket: TableBucket, offset: int, start_offset: int, end_offset: int) -> int:
        """Return the stop of a bucket for a fetch at `offset` of a log with this start and end; may set it first."""
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
        """The stops of a request's connection; new ones for a request without a connection."""
        if context.connection is None:
            return ConnectionStops()
        found = self._connections.get(context.connection)
        if found is None:
            found = self._connections[context.connection] = ConnectionStops()
        return found
