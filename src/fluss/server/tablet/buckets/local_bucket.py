"""The state of one bucket in its tablet: being opened, open, broken or gone.

States and transitions (only in the event loop's thread):

    OPENING -> OPEN       the log was recovered; everything that waited runs at once, in order of arrival
    OPENING -> BROKEN     it cannot be opened: requests get `error` (26; 70 on a full disk) until a later try succeeds
    BROKEN  -> OPENING    a request came after `BROKEN_RETRY_MS`
    OPEN    -> BROKEN     the store of a primary-key table has failed: it is closed, to be opened again
    any     -> GONE       table or partition was dropped, or the tablet stops: requests get `error`

Invariant: `log` and `remote` are set exactly in OPEN (and stay set in GONE, for the clean-up), and so are `kv` and
`snapshots` if the table has a primary key. What waited for OPENING runs inside the step that leaves it, so no later
request can overtake an earlier one for the same bucket.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Protocol

from fluss.errors import ErrorCode, FlussError
from fluss.model.paths import TableBucket
from fluss.server.storage.kv.kv_bucket import KvBucket
from fluss.server.storage.log.bucket_log import BucketLog
from fluss.server.tablet.kv_snapshots.bucket_snapshots import BucketSnapshots
from fluss.server.tablet.remote.remote_log import RemoteLog

BROKEN_RETRY_MS = 5_000


class BucketState(Enum):
    """The states of a bucket; the module docstring has the transitions."""

    OPENING = "opening"
    OPEN = "open"
    BROKEN = "broken"
    GONE = "gone"


class BucketWaiter(Protocol):
    """A request that is notified when a bucket has more to read, or is gone."""

    def bucket_changed(self) -> None:
        """Called in the loop after each change of the bucket; may remove the waiter from the bucket."""


class LocalBucket:
    """One bucket of this tablet: its state, its log and stores, and the requests that wait for it."""

    __slots__ = (
        "_settled",
        "bucket",
        "end_offset_when_opened",
        "error",
        "kv",
        "log",
        "name",
        "remote",
        "retry_at_ms",
        "snapshots",
        "state",
        "waiters",
    )

    def __init__(self, bucket: TableBucket, name: str) -> None:
        self.bucket = bucket
        self.name = name
        self.state = BucketState.OPENING
        self.log: BucketLog | None = None
        self.remote: RemoteLog | None = None
        self.kv: KvBucket | None = None
        self.snapshots: BucketSnapshots | None = None
        self.error: FlussError | None = None
        self.retry_at_ms = 0
        # The log end when this leader took over, as LIST_OFFSETS reports it.
        self.end_offset_when_opened = -1
        # A dict keeps the order of arrival, so no waiter starves behind later ones.
        self.waiters: dict[BucketWaiter, None] = {}
        self._settled: list[Callable[[], None]] = []

    def opened(self) -> tuple[BucketLog, RemoteLog]:
        """The log and its remote part; FlussError if the bucket is not open."""
        log, remote = self.log, self.remote
        if self.state is not BucketState.OPEN or log is None or remote is None:
            raise self.error or FlussError(f"{self.name} is being opened; retry later", ErrorCode.STORAGE_EXCEPTION)
        return log, remote

    def opened_kv(self) -> KvBucket:
        """The key-value half; FlussError if the bucket is not open or has no primary key."""
        self.opened()
        if self.kv is None:
            raise FlussError(
                f"{self.name} has no primary key; scan its log instead", ErrorCode.NON_PRIMARY_KEY_TABLE_EXCEPTION
            )
        return self.kv

    def when_settled(self, callback: Callable[[], None]) -> None:
        """Run `callback` when the bucket leaves OPENING; call only while it is in that state."""
        assert self.state is BucketState.OPENING
        self._settled.append(callback)

    def becomes_opening(self) -> None:
        """Enter OPENING from BROKEN, because the bucket is being opened again."""
        assert self.state is BucketState.BROKEN
        self.state = BucketState.OPENING
        self.error = None

    def becomes_open(
        self,
        log: BucketLog,
        remote: RemoteLog,
        kv: KvBucket | None = None,
        snapshots: BucketSnapshots | None = None,
    ) -> None:
        """Finish opening. The key-value half already listens to the log, so it is the first to get new rows."""
        assert self.state is BucketState.OPENING
        self.log, self.remote, self.kv, self.snapshots = log, remote, kv, snapshots
        self.state = BucketState.OPEN
        self.end_offset_when_opened = log.log_end_offset
        log.add_high_watermark_listener(self.wake)
        self._run_settled()

    def becomes_broken(self, error: FlussError, retry_at_ms: int) -> None:
        """Enter BROKEN, because opening failed. Requests get `error` until the next try."""
        assert self.state is BucketState.OPENING
        self.state = BucketState.BROKEN
        self.error = error
        self.retry_at_ms = retry_at_ms
        self._run_settled()

    def becomes_failed(self, error: FlussError, retry_at_ms: int) -> None:
        """Enter BROKEN from OPEN, because the bucket has failed; the caller closes its log and stores."""
        assert self.state is BucketState.OPEN
        assert self.log is not None
        self.log.remove_high_watermark_listener(self.wake)
        self.log = self.remote = self.kv = self.snapshots = None
        self.state = BucketState.BROKEN
        self.error = error
        self.retry_at_ms = retry_at_ms
        self.wake()

    def becomes_gone(self, error: FlussError) -> None:
        """Enter GONE, and notify all waiters. Requests get `error` from now on."""
        self.state = BucketState.GONE
        self.error = error
        if self.log is not None:
            self.log.remove_high_watermark_listener(self.wake)
        self._run_settled()
        self.wake()

    def wake(self) -> None:
        """Notify all waiters that there may be more to read."""
        if self.waiters:
            for waiter in tuple(self.waiters):
                waiter.bucket_changed()

    def _run_settled(self) -> None:
        settled, self._settled = self._settled, []
        for callback in settled:
            callback()
