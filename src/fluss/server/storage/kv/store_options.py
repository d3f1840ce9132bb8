"""The options with which RocksDB is opened and written. The numbers and most reasons are in `limits`."""

from __future__ import annotations

from typing import Any

from rocksdict import BlockBasedOptions, ChecksumType, DBCompressionType, Options, WriteOptions

from fluss.server.storage.kv import limits
from fluss.server.storage.kv.limits import KvResources


def store_options(resources: KvResources) -> Options:
    """Return the options with which the store of a bucket is created and opened."""
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_write_buffer_manager(resources.write_buffers)
    options.set_write_buffer_size(limits.WRITE_BUFFER_BYTES)
    options.set_min_write_buffer_number_to_merge(limits.WRITE_BUFFERS_PER_FILE)
    options.set_max_write_buffer_number(limits.MAX_WRITE_BUFFERS)
    options.set_level_zero_file_num_compaction_trigger(limits.COMPACT_FILES)
    options.set_max_bytes_for_level_base(limits.LEVEL_BASE_BYTES)
    options.set_level_zero_slowdown_writes_trigger(limits.SLOWDOWN_FILES)
    options.set_level_zero_stop_writes_trigger(limits.STOP_FILES)
    options.set_max_background_jobs(limits.BACKGROUND_JOBS)
    options.set_max_open_files(limits.MAX_OPEN_FILES_PER_STORE)
    options.set_max_log_file_size(limits.MAX_INFO_LOG_BYTES)
    options.set_keep_log_file_num(limits.MAX_INFO_LOGS)
    options.set_stats_dump_period_sec(0)
    options.set_stats_persist_period_sec(0)
    # Rows of a put come in key order, so each is inserted next to the one before, which takes a third less time per
    # row. RocksDB uses that hint only in its code path for several concurrent writers. The price of that path, that a
    # reader in another thread may see a part of a write batch, does not affect us: one thread writes and reads.
    options.set_unordered_write(True)
    options.set_memtable_prefix_bloom_ratio(limits.WRITE_BUFFER_BLOOM_RATIO)
    options.set_memtable_whole_key_filtering(True)
    options.set_compression_type(DBCompressionType.lz4())
    table = readable_table_options()
    table.set_block_cache(resources.block_cache)
    # The filter of a large file is larger than a shard of the cache: it would be read from the file for every batch of
    # keys. So filters and indexes stay in memory with the open files, about two bytes per key.
    table.set_cache_index_and_filter_blocks(False)
    table.set_bloom_filter(limits.BLOOM_BITS_PER_KEY, False)
    options.set_block_based_table_factory(table)
    return options


def readable_table_options() -> BlockBasedOptions:
    """Return options for files that other readers of snapshots can open; Apache Fluss 0.9.1 has RocksDB 6.20 of 2021.

    Every block that is not in the cache is checked when it is read. With CRC32C, RocksDB's default, that takes an
    eighth of the time of a lookup in a table that is larger than the cache; so another checksum is used.
    """
    table = BlockBasedOptions()
    table.set_format_version(5)
    table.set_checksum_type(ChecksumType.xxhash64())
    return table


def without_log() -> WriteOptions:
    """Return the options for all writes to a store: no write-ahead log."""
    options: Any = WriteOptions()
    options.disable_wal = True  # The changelog is the write-ahead log.
    options.memtable_insert_hint_per_batch = True
    return options  # type: ignore[no-any-return]
