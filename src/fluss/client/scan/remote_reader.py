"""Reading segments that a server has moved to remote storage.

When an answer to a fetch names remote segments, the bucket gets a task of this reader, which reads them and
passes their bytes to the same decoding as fetched ones. The bucket is not fetched meanwhile. Runs on the I/O thread;
files are opened and read on download threads.

While one segment is delivered, the next ones are opened and their first ranges are read. Slots are taken in the order
of the segments, so a segment with a slot can be delivered, or waits for one of its own bucket that has one.

Limits: at most `scanner.remote-log.prefetch-num` segments of a scanner are open at a time, each with
`scanner.remote-log.read-concurrency` ranges of `RANGE_BYTES` read or in flight, by `remote-file.download-thread-num`
threads. A bucket passes on the next part only when its last one is being decoded. Local files are mapped and need
none of that.

Failures: the segment may have expired, or the storage may be unavailable for a moment. The bucket goes back to
fetching, whose answer names the segments that then exist; after `MAX_FAILURES_IN_A_ROW` the user gets the error.
Permanent failures are reported at once: an unsupported kind of storage, or a file that is not what the server announced
(`remote_segment`). The bucket stays at the last row before it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from fluss.client.net.cluster import Cluster
from fluss.client.net.remote_files import FileSystems, local_path, map_file
from fluss.client.scan.decode_stage import DecodeStage, Source
from fluss.client.scan.remote_segment import RemoteSegment
from fluss.client.scan.subscription import Subscription
from fluss.errors import ErrorCode, FlussError
from fluss.protocol import fluss_api_pb2 as pb

MAX_FAILURES_IN_A_ROW = 10
RANGE_BYTES = 4 * 1024 * 1024
# Parts of a mapped file: as large as a usual answer to a fetch.
PIECE_BYTES = 1024 * 1024

# A damaged file stays damaged, although another replica might have a good copy of a local segment.
_LASTING_CODES = frozenset({ErrorCode.CORRUPT_RECORD_EXCEPTION})

logger = logging.getLogger(__name__)


class RemoteReader:
    """Reads the remote segments of one scanner."""

    def __init__(self, cluster: Cluster, stage: DecodeStage) -> None:
        self._cluster = cluster
        self._stage = stage
        self._files = FileSystems(cluster)
        self._slots: asyncio.Semaphore | None = None
        self._pool: ThreadPoolExecutor | None = None
        self._ending: set[asyncio.Task[None]] = set()

    def close(self) -> None:
        """Stop the download threads after their current work."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    async def read(self, subscription: Subscription, info: pb.PbRemoteLogFetchInfo) -> None:
        """Pass all segments of an answer to the decoding stage, in order."""
        if self._slots is None:
            self._slots = asyncio.Semaphore(self._cluster.config.scanner_remote_log_prefetch_num)
        begun: asyncio.Queue[_OpenSegment] = asyncio.Queue()
        opener = asyncio.get_running_loop().create_task(self._open_ahead(self._slots, info, begun))
        subscription.room = asyncio.Event()
        turn_backs = subscription.turn_backs
        try:
            for _ in info.remote_log_segments:
                segment = await begun.get()
                try:
                    if _wants_no_more(subscription, turn_backs):
                        return
                    segment.announced.check_order(subscription.fetch_offset)
                    await self._feed(subscription, segment, turn_backs)
                finally:
                    self._end_soon(segment)
                subscription.remote_failures = 0
        except Exception as error:
            await self._stage.settled(subscription)  # rows before the fault come first
            self._failed(subscription, error)
        finally:
            opener.cancel()
            while not begun.empty():
                self._end_soon(begun.get_nowait())
            subscription.remote_task = None
            subscription.room = None
            self._stage.progressed()

    async def _open_ahead(
        self, slots: asyncio.Semaphore, info: pb.PbRemoteLogFetchInfo, begun: asyncio.Queue[_OpenSegment]
    ) -> None:
        """Open every segment for which there is a slot."""
        position = info.first_start_pos
        for described in info.remote_log_segments:
            await slots.acquire()
            announced = RemoteSegment(info.remote_log_tablet_dir, described, position)
            begun.put_nowait(_OpenSegment(self, slots, announced))
            position = 0

    def _end_soon(self, segment: _OpenSegment) -> None:
        """End a segment in a separate task that is never cancelled: its slot must be released."""
        task = asyncio.get_running_loop().create_task(segment.end())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    def _failed(self, subscription: Subscription, error: Exception) -> None:
        subscription.remote_failures += 1
        if isinstance(error, FlussError) and (not error.is_retriable or error.error_code in _LASTING_CODES):
            self._stage.fail(subscription, error)
        elif subscription.remote_failures >= MAX_FAILURES_IN_A_ROW or not isinstance(error, (OSError, FlussError)):
            subscription.remote_failures = 0
            text = f"{subscription.bucket}: a remote log segment cannot be read: {error or repr(error)}"
            self._stage.fail(subscription, FlussError(text, ErrorCode.STORAGE_EXCEPTION))
        else:
            logger.info("%s: reading a remote segment failed, will be retried: %s", subscription.bucket, error)
            subscription.pause()

    async def _feed(self, subscription: Subscription, segment: _OpenSegment, turn_backs: int) -> None:
        if segment.local is not None:
            mapped = map_file(segment.local)
            segment.announced.check_size(len(mapped))
            await self._feed_mapped(subscription, mapped, segment.announced, turn_backs)
        else:
            await self._feed_ranges(subscription, segment, turn_backs)

    async def _feed_mapped(
        self, subscription: Subscription, mapped: memoryview, announced: RemoteSegment, turn_backs: int
    ) -> None:
        mapped = mapped[: announced.size_bytes]
        size, position = PIECE_BYTES, announced.position
        while position < len(mapped):
            await self._wait_for_room(subscription)
            if _wants_no_more(subscription, turn_backs):
                return
            is_last = position + size >= len(mapped)
            used = self._stage.add(
                subscription, mapped[position : position + size], _source(announced, is_last=is_last)
            )
            if announced.is_given_up:
                return
            if used:
                size = PIECE_BYTES
            elif is_last:
                break  # an incomplete batch
            else:
                size *= 2
            position += used
        announced.check_end(len(mapped) - position)

    async def _feed_ranges(self, subscription: Subscription, segment: _OpenSegment, turn_backs: int) -> None:
        """Ranges are read ahead in parallel and passed on in order; a batch that spans two ranges is joined."""
        rest = b""
        while content := await segment.next_range():
            piece = memoryview(rest + content if rest else content)
            await self._wait_for_room(subscription)
            if _wants_no_more(subscription, turn_backs):
                return
            used = self._stage.add(subscription, piece, _source(segment.announced, is_last=segment.is_read))
            if segment.announced.is_given_up:
                return
            rest = bytes(piece[used:])
        segment.announced.check_end(len(rest))

    async def open(self, path: str) -> Any:
        """Open a file of a store for reading."""
        return await self.on_thread(self._files.open, path, await self._files.token())

    @property
    def read_concurrency(self) -> int:
        """The number of ranges of a segment that are read at the same time."""
        return self._cluster.config.scanner_remote_log_read_concurrency

    def on_thread(self, work: Any, *arguments: Any) -> asyncio.Future[Any]:
        """Run a function on a download thread."""
        if self._pool is None:
            count = self._cluster.config.remote_file_download_thread_num
            self._pool = ThreadPoolExecutor(count, thread_name_prefix="fluss-download")
        return asyncio.get_running_loop().run_in_executor(self._pool, work, *arguments)

    @staticmethod
    async def _wait_for_room(subscription: Subscription) -> None:
        """Wait until no bytes of the bucket wait to be decoded."""
        while subscription.raw and subscription.active and subscription.room is not None:
            subscription.room.clear()
            await subscription.room.wait()


def _wants_no_more(subscription: Subscription, turn_backs: int) -> bool:
    """True if it has ended, waits for its user, was moved back since `turn_backs`, or has all rows of a bounded read.

    An error in delivered bytes moves it back. The user may have seen that error already, while the task has not been
    cancelled yet: anything that it delivered now would follow rows that were never delivered.
    """
    stop = subscription.stop_offset
    reached_stop = stop is not None and subscription.fetch_offset >= stop
    turned_back = subscription.turn_backs != turn_backs
    return not subscription.active or subscription.waits_for_user or turned_back or reached_stop


def _source(segment: RemoteSegment, *, is_last: bool) -> Source:
    return Source(segment=segment, is_last=is_last, end_offset=segment.end_offset)


class _OpenSegment:
    """A segment that has a slot until `end` is called; it is opened and read ahead of `next_range`."""

    def __init__(self, reader: RemoteReader, slots: asyncio.Semaphore, announced: RemoteSegment) -> None:
        self.announced = announced
        self.local = local_path(announced.path)
        self._position = announced.position
        self._reader = reader
        self._slots = slots
        self._file: Any = None
        self._ahead: deque[asyncio.Future[Any]] = deque()
        self._opening: asyncio.Task[None] | None = None
        if self.local is None:
            self._opening = asyncio.get_running_loop().create_task(self._open(announced.path))

    async def _open(self, path: str) -> None:
        self._file = await self._reader.open(path)
        self.announced.check_size(int(await self._reader.on_thread(self._file.size)))
        self._read_ahead()

    def _read_ahead(self) -> None:
        total = self.announced.size_bytes
        while self._position < total and len(self._ahead) < self._reader.read_concurrency:
            count = min(RANGE_BYTES, total - self._position)
            self._ahead.append(self._reader.on_thread(self._file.read_at, count, self._position))
            self._position += count

    @property
    def is_read(self) -> bool:
        """True if the last range was returned."""
        return not self._ahead and self._position >= self.announced.size_bytes

    async def next_range(self) -> bytes:
        """The next bytes; none at the end."""
        assert self._opening is not None
        await self._opening
        self._read_ahead()
        return bytes(await self._ahead.popleft()) if self._ahead else b""

    async def end(self) -> None:
        """Close the file when no read uses it any more, and release the slot."""
        try:
            if self._opening is not None:
                await asyncio.gather(self._opening, return_exceptions=True)
            await asyncio.gather(*self._ahead, return_exceptions=True)
            if self._file is not None:
                self._file.close()  # on this thread: closing a file that was only read does not contact its store
        finally:
            self._slots.release()
