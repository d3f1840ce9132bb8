"""Reused receive buffers for big frames, and the account of received bytes that are still in memory.

Theory. A big frame gets one anonymous mapping of its full size at once, so that it is received straight into place. The
mapping costs memory only where bytes have arrived, so a peer that announces 100 MiB and sends nothing occupies nothing.
The account therefore counts received bytes, not announced ones: `charge` when bytes arrive, `refund` when the frame is
served or, for record bytes, when their handler releases them.

Fresh memory costs a page fault per page, several times more than receiving into it. Buffers up to
`MAX_POOLED_BUFFER_BYTES` therefore go back to a pool of bounded size.

All calls are made in the event loop's thread, except `Lease.release`. No reference to a buffer may be kept after it was
given back: its next user overwrites it.
"""

from __future__ import annotations

import asyncio
import mmap
import threading
from collections.abc import Callable

SMALLEST_BUFFER_BYTES = 128 * 1024
# A read into a big frame asks for at least and at most this much.
MIN_STEP_BYTES = 16 * 1024
MAX_STEP_BYTES = 512 * 1024
# What all frames being received get together in one iteration of the event loop. libuv reads up to 32 times in a row,
# and fresh memory costs a page fault per page: without turns, dozens of frames would occupy the loop for half a second.
TURN_BYTES = 8 * 1024 * 1024
# A slow frame must make at least this much progress within its time limit, and the second while others wait for memory:
# with less than 256 KiB/s, large frames of others would wait for an hour.
MIN_PROGRESS_BYTES = 64 * 1024
MIN_PROGRESS_UNDER_PRESSURE_BYTES = 512 * 1024
MAX_POOLED_BUFFER_BYTES = 16 * 1024 * 1024


class BufferPool:
    """Buffers whose sizes are powers of two. The last one given back is reused first: it is in the CPU cache."""

    def __init__(self, max_pooled_bytes: int) -> None:
        self._max_pooled_bytes = max_pooled_bytes
        self._pooled_bytes = 0
        self._free: dict[int, list[memoryview]] = {}

    @property
    def pooled_bytes(self) -> int:
        """The size of all buffers in the pool."""
        return self._pooled_bytes

    def take(self, size: int) -> memoryview:
        """Return a writable buffer of at least `size` bytes, with undefined contents."""
        if size > MAX_POOLED_BUFFER_BYTES:
            return _map(size)
        buffer_size = max(SMALLEST_BUFFER_BYTES, 1 << (size - 1).bit_length())
        free = self._free.get(buffer_size)
        if free:
            self._pooled_bytes -= buffer_size
            return free.pop()
        return _map(buffer_size)

    def give_back(self, buffer: memoryview) -> None:
        """Return a buffer from `take`. It is kept for reuse if the pool has room, and freed otherwise."""
        size = len(buffer)
        if size > MAX_POOLED_BUFFER_BYTES or self._pooled_bytes + size > self._max_pooled_bytes:
            return
        self._pooled_bytes += size
        self._free.setdefault(size, []).append(buffer)


def _map(size: int) -> memoryview:
    # Private and anonymous: a page is allocated when it is first written. The mapping ends with the last view of it.
    if hasattr(mmap, "MAP_PRIVATE"):
        return memoryview(mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
    return memoryview(mmap.mmap(-1, size))


class BytesInMemory:
    """Counts the bytes of received frames or answers in memory, and decides who may continue at the limit.

    When the account is full, only the oldest owner may continue: it will end (or stall and be dropped), so owners
    cannot block each other forever. The limit is exceeded at most by that one and by one step of each other owner.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._bytes = 0
        self._unfinished: dict[int, None] = {}
        self._waiting: dict[int, Callable[[], None]] = {}

    @property
    def bytes(self) -> int:
        """The bytes that are charged and not refunded."""
        return self._bytes

    @property
    def is_full(self) -> bool:
        """True if the bytes in memory have reached the limit."""
        return self._bytes >= self._limit_bytes

    @property
    def _is_short(self) -> bool:
        """True if some owners must wait."""
        return self.is_full

    @property
    def has_waiting(self) -> bool:
        """True if an owner waits for room."""
        return bool(self._waiting)

    def begin(self, owner: int) -> None:
        """Register `owner`, which starts to receive a big frame or to make a large answer."""
        self._unfinished[owner] = None

    def end(self, owner: int) -> None:
        """Remove `owner`, whose frame or answer is complete, or whose connection is lost."""
        self._unfinished.pop(owner, None)
        self._wake()

    def charge(self, count: int) -> None:
        """Add `count` bytes that are in memory from now on."""
        self._bytes += count

    def refund(self, count: int) -> None:
        """Subtract `count` bytes that are no longer in memory."""
        self._bytes -= count
        assert self._bytes >= 0, "more bytes refunded than charged"
        self._wake()

    def may_continue(self, owner: int) -> bool:
        """True if `owner` may take more memory now."""
        return self._bytes < self._limit_bytes or next(iter(self._unfinished), None) == owner

    def wait(self, owner: int, wake: Callable[[], None]) -> None:
        """Call `wake` once when `owner` may continue."""
        self._waiting[owner] = wake

    def forget(self, owner: int) -> None:
        """Remove `owner`, whether it is waiting or not."""
        self._waiting.pop(owner, None)
        self.end(owner)

    def _wake(self) -> None:
        if not self._waiting:
            return
        if not self._is_short:
            waiting, self._waiting = self._waiting, {}
            for wake in waiting.values():
                wake()
            return
        wake_oldest = self._waiting.pop(next(iter(self._unfinished), -1), None)
        if wake_oldest is not None:
            wake_oldest()


class ReceivedInMemory(BytesInMemory):
    """The account of received bytes, part of which is reserved for fair shares.

    Frames that began early must not take all the memory, or all later ones wait until they end. So when all but
    `shared_bytes` of the limit is taken, a frame continues only up to its share: half of `shared_bytes` divided by the
    number of frames being received. The other half is for the oldest frame, which may always continue, and for ordinary
    frames, which are thus not affected by frames of 100 MiB that never end. The first read of a frame is in memory
    before the size of the frame is known, so `start_bytes` limits that read too.

    The more frames there are, the smaller is a share, but a frame keeps what it has received. So frames that begin one
    after another may together have more than the half that they share: 1/1 + 1/2 + 1/3 + ... of it. Frames larger than
    their share are therefore held before they use the other half. Only ordinary frames, which fit into a share, are
    received until the limit is reached; one that stops in the middle is not held, so it counts as stalled.
    """

    def __init__(self, limit_bytes: int, shared_bytes: int, loop: asyncio.AbstractEventLoop | None = None) -> None:
        super().__init__(limit_bytes)
        self._shared_bytes = min(shared_bytes, limit_bytes)
        self._loop = loop
        self._of_frames: dict[int, int] = {}
        self._sizes: dict[int, int] = {}
        self._of_turn = 0

    @property
    def _is_short(self) -> bool:
        return self._bytes >= self._limit_bytes - self._shared_bytes

    @property
    def share_bytes(self) -> int:
        """The number of bytes of a frame that may be in memory when memory is short."""
        return self._shared_bytes // (2 * max(1, len(self._unfinished)))

    @property
    def min_progress_bytes(self) -> int:
        """How much progress a frame must make within its time limit, or it counts as stalled."""
        return MIN_PROGRESS_UNDER_PRESSURE_BYTES if self.has_waiting else MIN_PROGRESS_BYTES

    def turn_is_over(self, count: int) -> bool:
        """True if a frame that has received `count` bytes since it was last held must let others go first."""
        return self._of_turn >= TURN_BYTES or count >= self._turn_share

    @property
    def _turn_share(self) -> int:
        return max(MIN_STEP_BYTES, TURN_BYTES // max(1, len(self._unfinished)))

    def step_bytes(self, owner: int) -> int:
        """Return the size of the next read into the frame of `owner`, so that the frame stays within its share."""
        step = min(MAX_STEP_BYTES, self._turn_share, TURN_BYTES - self._of_turn)
        if next(iter(self._unfinished), None) != owner:
            left = self._limit_bytes - self._shared_bytes - self._bytes
            if left <= 0:
                left = self.share_bytes - self._of_frames.get(owner, 0)
            step = min(step, left)
        return max(step, MIN_STEP_BYTES)

    def start_bytes(self, most: int) -> int:
        """Return the size of a read in which a frame may begin; at most `most`."""
        if not self._is_short:
            return most
        if self._bytes >= self._limit_bytes - self._shared_bytes // 2:
            return MIN_STEP_BYTES
        return min(most, max(self.share_bytes, MIN_STEP_BYTES))

    def begin_frame(self, owner: int, size: int) -> None:
        """Register `owner`, which starts to receive a big frame of `size` bytes."""
        self._sizes[owner] = size
        self.begin(owner)

    def charge_frame(self, owner: int, count: int) -> None:
        """Add `count` received bytes of the big frame of `owner`."""
        self.charge(count)
        if not self._of_turn and self._loop is not None:
            self._loop.call_soon(self._next_turn)
        self._of_turn += count
        self._of_frames[owner] = self._of_frames.get(owner, 0) + count

    def _next_turn(self) -> None:
        self._of_turn = 0

    def end(self, owner: int) -> None:
        """Remove `owner`, whose frame is complete or whose connection is lost."""
        self._of_frames.pop(owner, None)
        self._sizes.pop(owner, None)
        super().end(owner)

    def may_continue(self, owner: int) -> bool:
        """True if `owner` may take more memory now."""
        if not self._is_short or next(iter(self._unfinished), None) == owner:
            return True
        share = self.share_bytes
        if self._sizes.get(owner, 0) <= share:
            return not self.is_full
        return self._bytes < self._limit_bytes - self._shared_bytes // 2 and self._of_frames.get(owner, 0) < share

    def _wake(self) -> None:
        super()._wake()
        if self._waiting and not self.is_full:
            for owner in [owner for owner in self._waiting if self.may_continue(owner)]:
                self._waiting.pop(owner)()


class Lease:
    """The right of a handler to use record bytes in a receive buffer, until it releases them."""

    __slots__ = ("_account", "_buffer", "_loop", "_pool", "_size", "_thread")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        account: BytesInMemory,
        size: int,
        pool: BufferPool | None = None,
        buffer: memoryview | None = None,
    ) -> None:
        self._loop = loop
        self._thread = threading.get_ident()
        self._account = account
        self._size = size
        self._pool = pool
        self._buffer = buffer

    def release(self) -> None:
        """Give the bytes back. Any thread may call it; a second call does nothing."""
        if threading.get_ident() == self._thread:
            self._end(reuse=True)
        else:
            self._loop.call_soon_threadsafe(self._end, True)

    def abandon(self) -> None:
        """Refund the bytes of a failed handler, but never reuse the buffer: views of it may still exist."""
        self._end(reuse=False)

    def _end(self, reuse: bool) -> None:
        size, self._size = self._size, 0
        buffer, self._buffer = self._buffer, None
        if reuse and buffer is not None and self._pool is not None:
            self._pool.give_back(buffer)
        if size:
            self._account.refund(size)
