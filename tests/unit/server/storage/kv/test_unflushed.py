"""Rows that are not in files: the memory of all buckets has a limit, and the oldest go first."""

from __future__ import annotations

from pathlib import Path

from fluss.server.storage.kv.limits import KvResources
from fluss.server.storage.kv.store import Applied, KvStore
from fluss.server.storage.kv.unflushed import UnflushedBuckets
from tools.waiting import wait_until


class _Bucket:
    def __init__(self, unflushed: UnflushedBuckets) -> None:
        self._unflushed = unflushed
        self.flushes = 0
        self.is_flushing = False

    def flush(self) -> None:
        self._unflushed.flushed(self)
        self.flushes += 1
        self.is_flushing = True


def test_over_the_limit_buckets_are_flushed_one_by_one_oldest_first() -> None:
    used = 10
    unflushed = UnflushedBuckets(10, lambda: used)
    first, second, third = (_Bucket(unflushed) for _ in range(3))
    for bucket in (first, second, third, first):
        unflushed.wrote(bucket)
    used = 11
    unflushed.wrote(third)
    unflushed.wrote(third)
    assert (first.flushes, second.flushes, third.flushes) == (1, 0, 0), "the second waits until the first is done"
    first.is_flushing = False
    unflushed.wrote(first)
    assert (first.flushes, second.flushes, third.flushes) == (1, 1, 0)
    unflushed.closed(second)
    unflushed.wrote(first)
    assert (first.flushes, third.flushes) == (1, 1)


class _StoreBucket:
    def __init__(self, store: KvStore, unflushed: UnflushedBuckets) -> None:
        self.store = store
        self._unflushed = unflushed

    def flush(self) -> None:
        self._unflushed.flushed(self)
        self.store.flush(wait=True)

    @property
    def is_flushing(self) -> bool:
        return self.store.is_flushing


def test_full_buffers_that_wait_for_others_of_their_store_are_bounded(tmp_path: Path) -> None:
    """RocksDB itself does not make files of them when the memory of all stores is used up."""
    resources = KvResources(1 << 20, 6 << 20)
    buckets = [
        _StoreBucket(KvStore.open(tmp_path / str(number), resources), resources.unflushed) for number in range(3)
    ]
    value, highest = b"x" * 1000, 0
    for offset in range(1, 481):
        bucket = buckets[offset % 3]
        bucket.store.write({b"%d %d" % (offset, row): value for row in range(200)}, Applied(offset, 0, 0, 0))
        resources.unflushed.wrote(bucket)
        highest = max(highest, resources.write_buffers.get_usage())
    assert highest > 4 << 20

    def is_within_the_limit() -> bool:
        resources.unflushed.wrote(buckets[0])
        return bool(resources.write_buffers.get_usage() <= 6 << 20)

    # How far RocksDB's own threads are behind depends on the machine. Without flushes all of it would stay in memory.
    wait_until(is_within_the_limit, "96 MB were written", seen=resources.write_buffers.get_usage)
    for bucket in buckets:
        assert len(bucket.store.scan()) == 160 * 200
        bucket.store.close()
