"""One bucket as its tablet sees it: closed, being opened, open, broken or gone.

States and moves (only in the event loop's thread):

    OPENING -> OPEN       the log was recovered; everything that waited runs at once, in the order it came
    OPENING -> BROKEN     it cannot be opened: requests get `error` (26; 70 on a full disk) until a later try succeeds
    BROKEN  -> OPENING    somebody asked again after `BROKEN_RETRY_MS`
    OPEN    -> BROKEN     the store of a primary-key table has failed: it is closed, to be opened again
    any     -> GONE       table or partition was dropped, or the tablet stops: requests get `error`

Invariant: `log` and `remote` are set exactly in OPEN (and stay set in GONE, for the clean-up), and so are `kv` and
`snapshots` if the table has a primary key. What waited for OPENING runs inside the step that leaves it, so no later
request can overtake an earlier one of the same bucket.
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
    """See the module's text."""

    OPENING = "opening"
    OPEN = "open"
    BROKEN = "broken"
    GONE = "gone"


class BucketWaiter(Protocol):
    """Somebody who wants to know when a bucket has more to read, or is gone."""

    def bucket_changed(self) -> None:
        """Called in the loop; may remove itself from the bucket."""


class LocalBucket:
    """See the module's text."""

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
        # What LIST_OFFSETS calls the log end at the moment this leader took over.
        self.end_offset_when_opened = -1
        # A dict keeps the order of arrival, so nobody starves behind later waiters.
        self.waiters: dict[BucketWaiter, None] = {}
        self._settled: list[Callable[[], None]] = []

    def opened(self) -> tuple[BucketLog, RemoteLog]:
        """The log, or FlussError when the bucket has none to serve."""
        log, remote = self.log, self.remote
        if self.state is not BucketState.OPEN or log is None or remote is None:
            raise self.error or FlussError(f"{self.name} is being opened", ErrorCode.STORAGE_EXCEPTION)
        return log, remote

    def opened_kv(self) -> KvBucket:
        """The key-value half, or FlussError when the bucket has none to serve."""
        self.opened()
        if self.kv is None:
            raise FlussError(f"{self.name} has no primary key", ErrorCode.NON_PRIMARY_KEY_TABLE_EXCEPTION)
        return self.kv

    def when_settled(self, callback: Callable[[], None]) -> None:
        """Run `callback` when the bucket leaves OPENING; the caller has seen that it is in it."""
        assert self.state is BucketState.OPENING
        self._settled.append(callback)

    def becomes_opening(self) -> None:
        """Another try."""
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
        """Recovery is done. The key-value half listens to the log already, so it hears of new rows first."""
        assert self.state is BucketState.OPENING
        self.log, self.remote, self.kv, self.snapshots = log, remote, kv, snapshots
        self.state = BucketState.OPEN
        self.end_offset_when_opened = log.log_end_offset
        log.add_high_watermark_listener(self.wake)
        self._run_settled()

    def becomes_broken(self, error: FlussError, retry_at_ms: int) -> None:
        """Opening failed."""
        assert self.state is BucketState.OPENING
        self.state = BucketState.BROKEN
        self.error = error
        self.retry_at_ms = retry_at_ms
        self._run_settled()

    def becomes_failed(self, error: FlussError, retry_at_ms: int) -> None:
        """The bucket cannot go on as it is; the caller closes what it was made of."""
        assert self.state is BucketState.OPEN
        assert self.log is not None
        self.log.remove_high_watermark_listener(self.wake)
        self.log = self.remote = self.kv = self.snapshots = None
        self.state = BucketState.BROKEN
        self.error = error
        self.retry_at_ms = retry_at_ms
        self.wake()

    def becomes_gone(self, error: FlussError) -> None:
        """Nobody may use the bucket any more; whoever waits is told."""
        self.state = BucketState.GONE
        self.error = error
        if self.log is not None:
            self.log.remove_high_watermark_listener(self.wake)
        self._run_settled()
        self.wake()

    def wake(self) -> None:
        """More may be read: tell everyone who waits."""
        if self.waiters:
            for waiter in tuple(self.waiters):
                waiter.bucket_changed()

    def _run_settled(self) -> None:
        settled, self._settled = self._settled, []
        for callback in settled:
            callback()
