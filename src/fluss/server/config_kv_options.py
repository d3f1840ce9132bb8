"""The server options of primary-key tables; part of the table in `config_options`."""

from __future__ import annotations

from fluss.server.config_option import Kind, Option

KV_OPTIONS = [
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
