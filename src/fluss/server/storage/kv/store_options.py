"""How RocksDB is opened and written: the numbers are in `limits`, the reasons there and here."""

from __future__ import annotations

from typing import Any

from rocksdict import BlockBasedOptions, ChecksumType, DBCompressionType, Options, WriteOptions

from fluss.server.storage.kv import limits
from fluss.server.storage.kv.limits import KvResources


def store_options(resources: KvResources) -> Options:
    """Of the store of a bucket."""
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
    # Rows of a put come in the order of their keys, so each finds its place next to the one before: a third less time
    # per row. RocksDB looks there only on the way that it has for many writers at once. What others lose on that way,
    # that a reader in another thread sees a put whole or not at all, is nothing to us: one thread writes and reads.
    options.set_unordered_write(True)
    options.set_memtable_prefix_bloom_ratio(limits.WRITE_BUFFER_BLOOM_RATIO)
    options.set_memtable_whole_key_filtering(True)
    options.set_compression_type(DBCompressionType.lz4())
    table = readable_table_options()
    table.set_block_cache(resources.block_cache)
    # The filter of a large file is larger than one of the parts into which the cache is divided: it would be read from
    # the file for every batch of keys. So filters and indexes stay with the open files, about two bytes for every key.
    table.set_cache_index_and_filter_blocks(False)
    table.set_bloom_filter(limits.BLOOM_BITS_PER_KEY, False)
    options.set_block_based_table_factory(table)
    return options


def readable_table_options() -> BlockBasedOptions:
    """Files that other readers of snapshots can open too: Apache Fluss 0.9.1 comes with RocksDB of 2021 (6.20).

    Every block that is not in the cache is checked when it is read: with CRC32C, RocksDB's default, an eighth of the
    time of a lookup in a table that is larger than the cache.
    """
    table = BlockBasedOptions()
    table.set_format_version(5)
    table.set_checksum_type(ChecksumType.xxhash64())
    return table


def without_log() -> WriteOptions:
    """How everything is written."""
    options: Any = WriteOptions()
    options.disable_wal = True  # The changelog is the write-ahead log.
    options.memtable_insert_hint_per_batch = True
    return options  # type: ignore[no-any-return]
