"""Limits of the key-value stores of one process. Every limit has its unit in its name."""

from __future__ import annotations

from rocksdict import Cache, WriteBufferManager

from fluss.server.runtime.long_work import LongWork
from fluss.server.storage.kv.key_filter import FilterMemory
from fluss.server.storage.kv.recent_rows import RecentRows
from fluss.server.storage.kv.unflushed import UnflushedBuckets

# Shared by all stores of the process: blocks of rows that were read, and rows that are not in files yet. (These and
# `RECENT_ROWS_BYTES` are the defaults of the options kv.block-cache.size, kv.write-buffers.size, kv.recent-rows.size.)
BLOCK_CACHE_BYTES = 256 * 1024 * 1024
WRITE_BUFFERS_BYTES = 128 * 1024 * 1024
# Per store. Inserting a row into a small buffer, which fits into the processor's caches, takes half as long as into a
# large one. So buffers are small, and this many become one file together. Rows in buffers are also what a start after
# a crash has to replay from the log.
WRITE_BUFFER_BYTES = 4 * 1024 * 1024
WRITE_BUFFERS_PER_FILE = 10
MAX_WRITE_BUFFERS = 32
# The size of a write buffer's Bloom filter as a share of the buffer: 80 KiB each.
WRITE_BUFFER_BLOOM_RATIO = 0.02
# RocksDB slows writers down at SLOWDOWN_FILES and blocks them at STOP_FILES. That must never happen to the event loop,
# so puts are refused from PRESSURE_FILES or PRESSURE_WRITE_BUFFERS on.
SLOWDOWN_FILES = 40
STOP_FILES = 60
PRESSURE_FILES = 28
PRESSURE_WRITE_BUFFERS = 24
# Compaction merges this many new files with the level below and rewrites all of it, since keys come in no order. With
# more files and a smaller level, less is written per row of a large table, but more files are searched for a key.
COMPACT_FILES = 8
LEVEL_BASE_BYTES = 64 * 1024 * 1024
BACKGROUND_JOBS = 2
MAX_OPEN_FILES_PER_STORE = 256
BLOOM_BITS_PER_KEY = 10
MAX_INFO_LOG_BYTES = 1024 * 1024
MAX_INFO_LOGS = 2
# One write call holds the interpreter lock from beginning to end: this many rows take a few milliseconds.
WRITE_CHUNK_ROWS = 2000
# Puts of at least this many rows are written in key order: inserting a row next to the one before it is faster.
SORTED_WRITE_MIN_ROWS = 256
# Larger puts are sorted in parts, since sorting all their keys at once takes too long.
SORTED_AT_ONCE_MAX_ROWS = 32_768
# Up to this many rows of durable puts are stored at once; more in steps, with other requests served in between.
STORED_AT_ONCE_ROWS = 8_192
# The store is flushed after this many rows or batches, whichever comes first, so that a replay takes a second or two:
# the number of rows bounds large batches, the number of batches small ones, which cost more than their rows.
FLUSH_AFTER_ROWS = 400_000
FLUSH_AFTER_BATCHES = 4_000
# Iterators read ahead more and more rows, up to these limits.
MAX_READ_AHEAD_ROWS = 256
MAX_READ_AHEAD_BYTES = 256 * 1024
# A replay writes rows in groups of this size.
REPLAY_GROUP_ROWS = 20_000
# Rows that are accepted and not yet in the store, per bucket; above it puts are refused until the disk catches up.
MAX_PENDING_BYTES = 128 * 1024 * 1024
# Cached rows that are in the store and were written recently, of all buckets of the process.
RECENT_ROWS_BYTES = 64 * 1024 * 1024
# Key filters of all buckets of the process: enough for 20 million keys of one bucket.
KEY_FILTERS_BYTES = 48 * 1024 * 1024
PENDING_ROW_OVERHEAD_BYTES = 200


class KvResources:
    """The caches and budgets that all stores of a process share. Create it after the fork: RocksDB starts threads."""

    def __init__(
        self,
        block_cache_bytes: int = BLOCK_CACHE_BYTES,
        write_buffers_bytes: int = WRITE_BUFFERS_BYTES,
        recent_rows_bytes: int = RECENT_ROWS_BYTES,
        long_work: LongWork | None = None,
    ) -> None:
        self.long_work = long_work or LongWork()
        self.block_cache = Cache(block_cache_bytes)
        # False: RocksDB does not block writers when the buffers are full; puts are refused instead.
        self.write_buffers = WriteBufferManager(write_buffers_bytes, False)
        self.unflushed = UnflushedBuckets(write_buffers_bytes, self.write_buffers.get_usage)
        self.recent_rows = RecentRows(recent_rows_bytes)
        self.filter_memory = FilterMemory(KEY_FILTERS_BYTES)
