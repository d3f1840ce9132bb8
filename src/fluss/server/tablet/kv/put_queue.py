"""Queues of puts to a bucket, for the time in which one of them takes many steps.

A put has to see the results of the puts before it, so while one is merged in steps, other puts to the bucket wait for
it, in order of arrival. Puts to other buckets do not wait: all buckets share the turns of `LongWork`. Usually no put is
large and nothing waits: then there is no queue, and a put is done at once. Event loop only.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator

from fluss.server.runtime.long_work import LongWork
from fluss.server.tablet.buckets.local_bucket import LocalBucket

_logger = logging.getLogger(__name__)

PutSteps = Callable[[], Iterator[None]]
"""Does a put in steps and reports its result or its error."""


class PutQueues:
    """The queues of the buckets that have a put in progress."""

    def __init__(self, long_work: LongWork) -> None:
        self._long_work = long_work
        self._queues: dict[LocalBucket, deque[PutSteps]] = {}
        self._idle: dict[LocalBucket, list[asyncio.Future[None]]] = {}

    def is_busy(self, local: LocalBucket) -> bool:
        """True if a put to the bucket is in progress, so that another one has to be queued."""
        return local in self._queues

    def add(self, local: LocalBucket, put: PutSteps) -> None:
        """Queue a put behind those that were added before."""
        queue = self._queues.get(local)
        if queue is not None:
            queue.append(put)
            return
        self._queues[local] = queue = deque((put,))
        self._long_work.start(self._serve(local, queue))

    async def idle(self, local: LocalBucket) -> None:
        """Wait until no put to the bucket is in progress. The caller must do its put before it awaits anything else."""
        while self.is_busy(local):
            waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._idle.setdefault(local, []).append(waiting)
            await waiting

    def _serve(self, local: LocalBucket, queue: deque[PutSteps]) -> Iterator[None]:
        while queue:
            try:
                yield from queue.popleft()()
            except Exception:
                # The put could not report its own error. The puts behind it must not wait forever.
                _logger.exception("a put to %s failed without an answer", local.name)
            yield
        del self._queues[local]
        for waiting in self._idle.pop(local, ()):
            if not waiting.done():
                waiting.set_result(None)
