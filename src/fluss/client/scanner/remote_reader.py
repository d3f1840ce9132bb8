"""Reading segments that a server has moved to remote storage.

When an answer to a fetch names remote segments, the bucket gets a task of this reader, which walks through them and
feeds their bytes to the same decoding as fetched ones. The bucket is not fetched meanwhile. Runs on the I/O thread;
files are opened and read on download threads.

Bounds: at most `scanner.remote-log.prefetch-num` segments are open at a time, each with
`scanner.remote-log.read-concurrency` ranges of `RANGE_BYTES` in flight, read by `remote-file.download-thread-num`
threads. A bucket hands on the next piece only when its last one is being decoded. Local files are mapped and need
none of that.

Failures: the segment may have expired, or the storage is away for a moment. The bucket goes back to fetching, whose
answer names what exists then; after `MAX_FAILURES_IN_A_ROW` the user gets the error.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from fluss.client.cluster import Cluster
from fluss.client.scanner.decode_stage import DecodeStage
from fluss.client.scanner.remote_files import FileSystems, local_path, map_file, segment_path
from fluss.client.scanner.subscription import Subscription
from fluss.errors import ErrorCode, FlussError
from fluss.protocol import fluss_api_pb2 as pb

MAX_FAILURES_IN_A_ROW = 10
RANGE_BYTES = 4 * 1024 * 1024
# Pieces of a mapped file: as large as a usual answer to a fetch.
PIECE_BYTES = 1024 * 1024

logger = logging.getLogger(__name__)


class RemoteReader:
    """One per scanner."""

    def __init__(self, cluster: Cluster, stage: DecodeStage) -> None:
        self._cluster = cluster
        self._stage = stage
        self._files = FileSystems(cluster)
        self._slots: asyncio.Semaphore | None = None
        self._pool: ThreadPoolExecutor | None = None

    def close(self) -> None:
        """Stop the download threads after what they do now."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    async def read(self, subscription: Subscription, info: pb.PbRemoteLogFetchInfo) -> None:
        """Feed all segments of an answer to the decoding stage, in order."""
        if self._slots is None:
            self._slots = asyncio.Semaphore(self._cluster.config.scanner_remote_log_prefetch_num)
        position = info.first_start_pos
        subscription.room = asyncio.Event()
        try:
            for segment in info.remote_log_segments:
                path = segment_path(
                    info.remote_log_tablet_dir, segment.remote_log_segment_id, segment.remote_log_start_offset
                )
                async with self._slots:
                    await self._read_segment(subscription, path, position)
                if not subscription.active or subscription.waits_for_user:
                    return
                subscription.remote_failures = 0
                # The last batch may end before the segment does, e.g. when it was compacted away.
                subscription.fetch_offset = max(subscription.fetch_offset, segment.remote_log_end_offset)
                position = 0
        except (OSError, FlussError) as error:
            self._failed(subscription, error)
        finally:
            subscription.remote_task = None
            subscription.room = None
            self._stage.progressed()

    def _failed(self, subscription: Subscription, error: OSError | FlussError) -> None:
        subscription.remote_failures += 1
        if isinstance(error, FlussError) and not error.is_retriable:
            self._stage.fail(subscription, error)
        elif subscription.remote_failures >= MAX_FAILURES_IN_A_ROW:
            subscription.remote_failures = 0
            text = f"{subscription.bucket}: a remote log segment cannot be read: {error}"
            self._stage.fail(subscription, FlussError(text, ErrorCode.STORAGE_EXCEPTION))
        else:
            logger.info("%s: reading a remote segment failed, will be repeated: %s", subscription.bucket, error)
            subscription.pause()

    async def _read_segment(self, subscription: Subscription, path: str, position: int) -> None:
        local = local_path(path)
        if local is not None:
            mapped = map_file(local)
            await self._feed_mapped(subscription, mapped, position)
            return
        token = await self._files.token()
        file = await self._on_thread(self._files.open, path, token)
        try:
            await self._feed_ranges(subscription, file, position)
        finally:
            await self._on_thread(file.close)

    async def _feed_mapped(self, subscription: Subscription, mapped: memoryview, position: int) -> None:
        size = PIECE_BYTES
        while position < len(mapped) and subscription.active:
            await self._wait_for_room(subscription)
            if not subscription.active or subscription.waits_for_user:
                return
            used = self._stage.add(subscription, mapped[position : position + size], projected=False)
            if used:
                size = PIECE_BYTES
            elif position + size >= len(mapped):
                return  # a cut-off batch at the end of the file
            else:
                size *= 2
            position += used

    async def _feed_ranges(self, subscription: Subscription, file: Any, position: int) -> None:
        """Ranges are read ahead in parallel and handed on in order; a batch over two ranges is put together."""
        total = int(await self._on_thread(file.size))
        ahead: deque[asyncio.Future[Any]] = deque()
        rest = b""
        try:
            while (position < total or ahead) and subscription.active:
                while position < total and len(ahead) < self._cluster.config.scanner_remote_log_read_concurrency:
                    count = min(RANGE_BYTES, total - position)
                    ahead.append(self._on_thread(file.read_at, count, position))
                    position += count
                content = await ahead.popleft()
                piece = memoryview(rest + content if rest else content)
                await self._wait_for_room(subscription)
                if not subscription.active or subscription.waits_for_user:
                    return
                used = self._stage.add(subscription, piece, projected=False)
                rest = bytes(piece[used:])
        finally:
            if ahead:
                await asyncio.wait(ahead)  # they use the file, which is closed next

    def _on_thread(self, work: Any, *arguments: Any) -> asyncio.Future[Any]:
        if self._pool is None:
            count = self._cluster.config.remote_file_download_thread_num
            self._pool = ThreadPoolExecutor(count, thread_name_prefix="fluss-download")
        return asyncio.get_running_loop().run_in_executor(self._pool, work, *arguments)

    @staticmethod
    async def _wait_for_room(subscription: Subscription) -> None:
        """Until nothing of the bucket waits to be decoded."""
        while subscription.raw and subscription.active and subscription.room is not None:
            subscription.room.clear()
            await subscription.room.wait()
