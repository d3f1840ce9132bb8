"""The server options of primary-key tables; collected by `options`."""

from __future__ import annotations

from fluss.server.config.option import Kind, Option

KV_OPTIONS = [
    Option(
        "kv.block-cache.size",
        Kind.SIZE,
        "256mb",
        "memory of each tablet process for caching blocks of rows that were read, over all primary-key tables",
        attribute="kv_block_cache_size",
        own=True,
        minimum=1,
    ),
    Option(
        "kv.write-buffers.size",
        Kind.SIZE,
        "128mb",
        "memory of each tablet process for rows that are not written to files yet, over all primary-key tables",
        attribute="kv_write_buffers_size",
        own=True,
        minimum=1,
    ),
    Option(
        "kv.recent-rows.size",
        Kind.SIZE,
        "64mb",
        "memory of each tablet process for recently written rows, which makes writing them again cheap",
        attribute="kv_recent_rows_size",
        own=True,
        minimum=0,
    ),
    Option(
        "kv.snapshot.interval",
        Kind.DURATION,
        "10min",
        "interval of snapshots of changed primary-key buckets to `remote.data.dir`; only if this option or "
        "`remote.data.dir` is given; 0 switches it off",
        attribute="kv_snapshot_interval_ms",
        minimum=0,
    ),
    Option(
        "kv.snapshot.num-retained",
        Kind.INTEGER,
        "2",
        "how many snapshots of a bucket are kept, besides leased ones",
        attribute="kv_snapshot_num_retained",
        minimum=1,
    ),
    Option(
        "kv.snapshot.lease.expiration-check-interval",
        Kind.DURATION,
        "10min",
        "how often expired leases of snapshots are removed",
        attribute="kv_snapshot_lease_check_interval_ms",
        minimum=1,
    ),
    Option(
        "kv.scanner.ttl",
        Kind.DURATION,
        "10min",
        "how long a scan of a primary-key table may be idle",
        attribute="kv_scanner_ttl_ms",
        minimum=1,
    ),
    Option(
        "kv.scanner.expiration-interval",
        Kind.DURATION,
        "30s",
        "how often idle scans are looked for",
        attribute="kv_scanner_expiration_interval_ms",
        minimum=1,
    ),
    Option(
        "kv.scanner.max-per-bucket",
        Kind.INTEGER,
        "8",
        "how many scans of a bucket may be open",
        attribute="kv_scanner_max_per_bucket",
        minimum=1,
    ),
    Option(
        "kv.scanner.max-per-server",
        Kind.INTEGER,
        "200",
        "how many scans a tablet may have open",
        attribute="kv_scanner_max_per_server",
        minimum=1,
    ),
    Option(
        "kv.scanner.max-batch-size",
        Kind.SIZE,
        "10mb",
        "largest batch of a scan",
        attribute="kv_scanner_max_batch_size",
        minimum=1,
    ),
]
