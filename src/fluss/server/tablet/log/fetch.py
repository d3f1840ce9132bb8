"""FETCH_LOG: answered at once, or parked until one of its buckets has more (long poll).

Theory. A fetch reads the logs and parks in one step of the event loop, so no append can happen in between. A parked
fetch is registered with each of its buckets; whenever the high watermark of one advances, or a bucket is dropped, it
reads again in the same step and answers if it has enough. Reading costs time, and thousands of fetches may wait for one
bucket, so a fetch does not read again until the bytes that it still needs have been appended. It is unregistered when
it is answered, times out, or is cancelled because its connection is gone, so nothing refers to a fetch that is over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from fluss.errors import ErrorCode, FlussError
from fluss.model.paths import TableBucket
from fluss.protocol import fluss_api_pb2 as pb
from fluss.server.runtime.handlers import Reply, RequestContext
from fluss.server.storage.log.segment import Segment
from fluss.server.tablet.buckets.access import TableAccess
from fluss.server.tablet.buckets.local_bucket import BucketState, LocalBucket
from fluss.server.tablet.buckets.registry import BucketRegistry, wait_until_settled
from fluss.server.tablet.log.fetch_reader import FetchAnswer, must_wait, read_available
from fluss.server.tablet.log.fetch_request import CLIENT_FOLLOWER_ID, FetchPlan, TableFetch, table_fetch
from fluss.server.tablet.log.projection_cache import ProjectionCache
from fluss.server.tablet.log.read_stops import ReadStops

# Clients fetch one table at a time; each table is resolved and answered in one step.
MAX_TABLES_OF_A_FETCH = 1_024


class WaitingFetch:
    """A parked fetch, registered with its buckets."""

    __slots__ = ("_buckets", "_ends", "_missing_bytes", "_plan", "_timer", "future")

    def __init__(self, plan: FetchPlan, first: FetchAnswer, loop: asyncio.AbstractEventLoop) -> None:
        self._plan = plan
        self.future: asyncio.Future[Reply] = loop.create_future()
        self._buckets = [item.local for table in plan.tables for item in table.buckets if item.local is not None]
        for local in self._buckets:
            local.waiters[self] = None
        self._timer = loop.call_later(plan.max_wait_ms / 1000, self.answer)
        self.future.add_done_callback(self._leave)
        self._note_read(first)

    def bucket_changed(self) -> None:
        """Read the logs again, since they may have more, and answer if that is enough."""
        if self._cannot_be_enough():
            return
        answer = read_available(self._plan)
        if must_wait(self._plan, answer):
            self._note_read(answer)
        else:
            self._finish(answer.pieces())

    def _note_read(self, answer: FetchAnswer) -> None:
        """Record how many bytes the last read lacked and where each bucket ended."""
        self._missing_bytes = self._plan.min_bytes - answer.found_bytes
        self._ends: list[tuple[LocalBucket, Segment, int]] = []
        for local in self._buckets:
            if local.log is not None:
                active = local.log.segments[-1]
                self._ends.append((local, active, active.committed_size))

    def _cannot_be_enough(self) -> bool:
        """True if nothing has changed since the last read except that too few bytes were appended."""
        if self._missing_bytes <= 1 or self._plan.has_filter or len(self._ends) < len(self._buckets):
            return False
        appended_bytes = 0
        for local, segment, size in self._ends:
            log = local.log
            if local.state is not BucketState.OPEN or log is None or log.segments[-1] is not segment:
                return False
            appended_bytes += segment.committed_size - size
        return appended_bytes < self._missing_bytes

    def answer(self) -> None:
        """Answer with what can be read now. Called when the time limit is over."""
        if not self.future.done():
            self._finish(read_available(self._plan).pieces())

    def _finish(self, reply: Reply) -> None:
        # Unregister first: the same step may wake this fetch again through another bucket.
        self._leave(self.future)
        if not self.future.done():
            self.future.set_result(reply)

    def _leave(self, _: asyncio.Future[Reply]) -> None:
        self._timer.cancel()
        for local in self._buckets:
            local.waiters.pop(self, None)


class FetchApi:
    """Handler of FETCH_LOG."""

    def __init__(self, registry: BucketRegistry, access: TableAccess, stops: ReadStops) -> None:
        self._registry = registry
        self._access = access
        self._stops = stops
        self._projections = ProjectionCache()
        registry.dropped_listeners.append(self._projections.forget)

    def fetch_log(self, context: RequestContext, request: pb.FetchLogRequest) -> Reply | Awaitable[Reply]:
        """Answer now, or return a future of the answer."""
        if len(request.tables_req) > MAX_TABLES_OF_A_FETCH:
            text = (
                f"the fetch names {len(request.tables_req)} tables, at most {MAX_TABLES_OF_A_FETCH} are allowed; send "
                "several requests"
            )
            raise FlussError(text, ErrorCode.CORRUPT_MESSAGE)
        self._registry.follow_catalog()
        seen: set[TableBucket] = set()
        tables = [self._resolve(context, table, seen) for table in request.tables_req]
        plan = FetchPlan(request, tables, self._stops.of(context))
        if request.follower_server_id != CLIENT_FOLLOWER_ID:
            _refuse_follower(plan, request.follower_server_id)
        opening = [
            item.local
            for table in plan.tables
            for item in table.buckets
            if item.local is not None and item.local.state is BucketState.OPENING
        ]
        if opening:
            return self._fetch_when_open(plan, opening)
        return self._answer_or_park(plan)

    def _resolve(
        self, context: RequestContext, request: pb.PbFetchLogReqForTable, seen: set[TableBucket]
    ) -> TableFetch:
        """Resolve one table. `seen` has the buckets that were named before: every bucket is fetched only once."""
        entry = self._registry.table(request.table_id)
        refused = None if entry is None else self._access.error(context, entry.path)
        table = table_fetch(request, entry, self._projections, refused, seen)
        if table.error is None:
            for item in table.buckets:
                try:
                    item.local = self._registry.find(item.bucket)
                except FlussError as error:
                    item.error = error
        return table

    def _answer_or_park(self, plan: FetchPlan) -> Reply | asyncio.Future[Reply]:
        answer = read_available(plan)
        if must_wait(plan, answer):
            return WaitingFetch(plan, answer, asyncio.get_running_loop()).future
        return answer.pieces()

    async def _fetch_when_open(self, plan: FetchPlan, opening: list[LocalBucket]) -> Reply:
        await wait_until_settled(opening)
        reply = self._answer_or_park(plan)
        return await reply if isinstance(reply, asyncio.Future) else reply


def _refuse_follower(plan: FetchPlan, server_id: int) -> None:
    error = FlussError(
        f"server {server_id} is not a follower, because a server on one machine has no replicas; fetch as a client",
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    )
    for table in plan.tables:
        for item in table.buckets:
            item.local, item.error = None, error
