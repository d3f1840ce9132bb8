"""The stage between fetching and the user: record bytes wait here, are decoded in order, and go to the `ReadyQueue`.

Runs on the I/O thread, except for the decoding of larger chunks, which happens on the decoding threads, two chunks of a
bucket at a time, so that no thread waits for the other's last batch. Rows of a chunk are delivered after those of the
previous chunk. Bytes of fetch answers and of remote segments are treated alike.

Limits: `is_full` at `MAX_RAW_BYTES` of undecoded bytes; decoding stops while the `ReadyQueue` has no room.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

from fluss.client.decode.decode_pool import decode_pool
from fluss.client.decode.decoder import BatchDecoder, Decoded
from fluss.client.decode.log_walk import Walked, next_sound_batch, walk
from fluss.client.decode.table_schemas import learn_schemas
from fluss.client.net.cluster import Cluster
from fluss.client.scan.fetch_rules import Reaction, request_reaction
from fluss.client.scan.ready_queue import ReadyQueue
from fluss.client.scan.remote_segment import RemoteSegment
from fluss.client.scan.subscription import RawChunk, Subscription
from fluss.errors import ErrorCode, FlussError

MAX_RAW_BYTES = 32 * 1024 * 1024
# Smaller chunks are decoded on the I/O thread: handing them over would take longer.
INLINE_DECODE_BYTES = 16 * 1024
# Larger chunks are decoded in two halves at the same time.
PARALLEL_DECODE_BYTES = 128 * 1024
MAX_DECODING_CHUNKS_PER_BUCKET = 2
# After bytes that are not a batch, the next one is searched by checksums within this distance.
MAX_SEARCH_BYTES = 16 * 1024 * 1024


class Source(NamedTuple):
    """The origin of bytes. `is_last`: no more follow, and the whole they belong to ends at `end_offset`."""

    projected: bool = False
    filtered_end: int | None = None
    segment: RemoteSegment | None = None
    is_last: bool = False
    end_offset: int = -1


class DecodeStage:
    """`on_progress` is called when decoding made room, with an error if there was one."""

    def __init__(
        self,
        cluster: Cluster,
        decoder: BatchDecoder,
        queue: ReadyQueue,
        on_progress: Callable[[FlussError | None], None],
    ) -> None:
        self._cluster = cluster
        self._decoder = decoder
        self._queue = queue
        self._on_progress = on_progress
        self._raw_bytes = 0
        self._tasks: set[asyncio.Task[Any]] = set()

    @property
    def is_full(self) -> bool:
        """True if no more bytes should be fetched now."""
        return self._raw_bytes >= MAX_RAW_BYTES

    def close(self) -> None:
        """Drop the chunks that are being decoded."""
        for task in list(self._tasks):
            task.cancel()

    def add(self, subscription: Subscription, records: memoryview, source: Source) -> int:
        """Queue bytes for decoding and move the fetch offset past them. Return the number of bytes processed.

        FlussError 14 if they are not the expected bytes of the remote segment; those before the fault are queued.
        """
        used = 0
        while True:
            rest = records[used:]
            offset = subscription.fetch_offset
            walked = walk(rest, offset, has_gaps=self._decoder.has_gaps)
            if source.segment is None and walked.next_offset is not None and walked.next_offset <= offset:
                before = f"it ends at offset {walked.next_offset}, and {offset} was asked for"
                walked = Walked(0, None, set(), fault=before)
            if walked.next_offset is not None:
                self._queue_batches(subscription, rest[: walked.end], walked, source)
                used += walked.end
                rest = rest[walked.end :]
            fault = walked.fault
            is_last = source.is_last and (source.segment is not None or not used)
            if fault is None and len(rest) and is_last:
                fault = f"{len(rest)} bytes are not a whole batch"
            if fault is None:
                return used
            skipped_bytes = self._step_over(subscription, rest, fault, source._replace(is_last=is_last))
            if not skipped_bytes:
                return used
            used += skipped_bytes

    def _queue_batches(self, subscription: Subscription, batches: memoryview, walked: Walked, source: Source) -> None:
        assert walked.next_offset is not None
        segment, offset, filtered_end = source.segment, subscription.fetch_offset, source.filtered_end
        if segment is not None:
            segment.check_batches(batches, walked.end, offset)
        chunk = RawChunk(
            batches, offset, source.projected, filtered_end if walked.fault is None else None,
            frozenset(walked.schema_ids), walked.middle, segment,
        )  # fmt: skip
        subscription.fetch_offset = max(offset, walked.next_offset, chunk.filtered_end or 0)
        subscription.raw_bytes += walked.end
        self._raw_bytes += walked.end
        if subscription.full_rows and all(map(self._decoder.has_wire_columns, walked.schema_ids)):
            subscription.full_rows = False  # the rows that could not be projected are done
        self._queue_chunk(subscription, chunk)

    def _queue_chunk(self, subscription: Subscription, chunk: RawChunk) -> None:
        subscription.raw.append(chunk)
        self.decode_waiting(subscription)

    def _step_over(self, subscription: Subscription, damaged: memoryview, fault: str, source: Source) -> int:
        """Skip bytes that are not a batch, if that is wanted; return their number, 0 to stop here.

        Checksums show where the next batch begins. A batch whose columns were cut out has no valid one, so such batches
        are first fetched whole. If more bytes may follow, they are waited for.
        """
        offset, segment = subscription.fetch_offset, source.segment
        skips = self._decoder.skips_bad_batches
        if segment is not None and not skips:
            raise segment.fault(f"cannot be read: {fault}")
        if skips and source.projected and self._decoder.wire_positions is not None:
            subscription.full_rows = True
            return 0
        found = self._next_batch(damaged, offset, source) if skips else None
        is_last = source.is_last or len(damaged) >= MAX_SEARCH_BYTES
        if found is not None:
            size, next_offset = found
        elif skips and is_last and source.end_offset >= offset + (segment is None):
            size, next_offset = len(damaged), source.end_offset
        else:
            if is_last or not skips:
                error = self._decoder.damaged_log(subscription.bucket, offset, fault)
                self._queue_step(subscription, Decoded(None, offset, error=error))
            return 0
        if segment is not None:
            segment.resume_at(next_offset)
        self.skip(subscription, next_offset, fault)
        return size

    def _next_batch(self, damaged: memoryview, offset: int, source: Source) -> tuple[int, int] | None:
        searched = damaged[:MAX_SEARCH_BYTES]
        return next_sound_batch(searched, offset, source.end_offset, has_gaps=self._decoder.has_gaps)

    def skip(self, subscription: Subscription, next_offset: int, reason: object) -> None:
        """Continue at `next_offset`; the skipped offsets are reported to the user."""
        first = max(subscription.fetch_offset, 0)
        if next_offset > first:
            what = f"the data stored for offsets {first} to {next_offset - 1}"
            bad = self._decoder.bad_batch(subscription.bucket, first, next_offset - 1, what, reason)
            subscription.fetch_offset = next_offset
            self._queue_step(subscription, Decoded(None, next_offset, skipped=bad))

    def _queue_step(self, subscription: Subscription, step: Decoded) -> None:
        """Queue a step after the rows that are being decoded."""
        nothing = memoryview(b"")
        chunk = RawChunk(nothing, subscription.fetch_offset, False, None, frozenset(), 0, step=step)
        self._queue_chunk(subscription, chunk)

    def discard(self, subscription: Subscription | None) -> None:
        """Drop the bytes of a bucket, and stop reading its remote segments."""
        if subscription is None:
            return
        self._raw_bytes -= subscription.raw_bytes
        subscription.raw.clear()
        subscription.raw_bytes = 0
        if subscription.remote_task is not None:
            subscription.remote_task.cancel()
        if subscription.room is not None:
            subscription.room.set()

    async def settled(self, subscription: Subscription) -> None:
        """Wait until all added bytes of the bucket are decoded, or the bucket is dropped."""
        while subscription.active and (subscription.raw or subscription.decodings):
            if subscription.decodings:
                await asyncio.wait(list(subscription.decodings))
            elif subscription.room is not None:
                subscription.room.clear()
                await subscription.room.wait()

    def fail(self, subscription: Subscription, error: FlussError) -> None:
        """Let the next poll raise an error; the bucket is paused until then."""
        subscription.waits_for_user = True
        self._queue.put(subscription, [Decoded(None, subscription.fetch_offset, error=error)])

    def progressed(self) -> None:
        """Called when other code finished work for a bucket."""
        self._on_progress(None)

    def decode_waiting(self, subscription: Subscription) -> None:
        """Decode small chunks at once, unless others are before them; pass the rest to the decoding threads."""
        decodings = subscription.decodings
        while subscription.raw and len(decodings) < MAX_DECODING_CHUNKS_PER_BUCKET and self._queue.has_room():
            chunk = subscription.raw.popleft()
            size = len(chunk.view)
            subscription.raw_bytes -= size
            self._raw_bytes -= size
            if subscription.room is not None:
                subscription.room.set()
            unknown = [schema_id for schema_id in chunk.schema_ids if not self._decoder.knows(schema_id)]
            if size <= INLINE_DECODE_BYTES and not unknown and not decodings:
                self._deliver(subscription, self._decode(subscription, chunk))
                continue
            before = decodings[-1] if decodings else None
            task = asyncio.get_running_loop().create_task(self._decode_later(subscription, chunk, unknown, before))
            decodings.append(task)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _decode_later(
        self, subscription: Subscription, chunk: RawChunk, unknown: list[int], before: asyncio.Task[None] | None
    ) -> None:
        loop = asyncio.get_running_loop()
        trouble: FlussError | None = None
        turn_backs = subscription.turn_backs
        try:
            parts = [] if unknown else _parts(chunk, loop, self._decode, subscription)
            if before is not None:
                await asyncio.wait([before])
            if subscription.turn_backs != turn_backs:
                return  # the previous chunk had an error: this one is fetched again
            if unknown:
                await learn_schemas(self._cluster, self._decoder, unknown)
                parts = _parts(chunk, loop, self._decode, subscription)
            for part in parts:
                steps = await part
                self._deliver(subscription, steps)
                if steps and steps[-1].error is not None:
                    break
        except FlussError as error:  # no schema: retried after a lost connection, otherwise raised to the user
            trouble = error
            if request_reaction(error.error_code) is Reaction.RAISE:
                self._deliver(subscription, [Decoded(None, chunk.position, error=error)])
            else:
                self._go_back(subscription, chunk.position)
                subscription.pause()
        finally:
            subscription.decodings.popleft()
        self._on_progress(trouble)

    def _decode(self, subscription: Subscription, chunk: RawChunk) -> list[Decoded]:
        """Decode a chunk; may run on a decoding thread."""
        if chunk.step is not None:
            return [chunk.step]
        steps = self._decoder.decode(
            chunk.view, chunk.position, subscription.bucket, projected=chunk.projected, filtered_end=chunk.filtered_end
        )
        error = steps[-1].error if steps else None
        if error is not None and chunk.segment is not None and error.error_code == ErrorCode.CORRUPT_RECORD_EXCEPTION:
            steps[-1] = steps[-1]._replace(error=chunk.segment.fault(f"cannot be read: {error.message}"))
        return steps

    def _deliver(self, subscription: Subscription, steps: list[Decoded]) -> None:
        """Deliver steps to the user. An error takes effect first: once it is queued, the user may ask for more."""
        if steps and steps[-1].error is not None and subscription.active:
            self._go_back(subscription, steps[-1].next_offset)
            subscription.waits_for_user = True
        self._queue.put(subscription, steps)

    def _go_back(self, subscription: Subscription, offset: int) -> None:
        """Fetch again from `offset`; data read after it is dropped."""
        self.discard(subscription)
        subscription.fetch_offset = offset
        subscription.turn_backs += 1


def _parts(
    chunk: RawChunk,
    loop: asyncio.AbstractEventLoop,
    decode: Callable[[Subscription, RawChunk], list[Decoded]],
    subscription: Subscription,
) -> list[asyncio.Future[list[Decoded]]]:
    """Decode a chunk on the decoding threads, a large one in two halves at the same time."""
    chunks = [chunk]
    if len(chunk.view) >= PARALLEL_DECODE_BYTES and 0 < chunk.middle < len(chunk.view):
        first = chunk._replace(view=chunk.view[: chunk.middle], filtered_end=None)
        chunks = [first, chunk._replace(view=chunk.view[chunk.middle :])]
    return [loop.run_in_executor(decode_pool(), decode, subscription, part) for part in chunks]
