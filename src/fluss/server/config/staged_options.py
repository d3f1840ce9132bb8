"""The server options of staged appends; part of the table in `options`."""

from __future__ import annotations

from fluss.server.config.option import Kind, Option

STAGED_OPTIONS = [
    Option(
        "staged.append.expiration",
        Kind.DURATION,
        "1 h",
        "staged rows are removed when they are not committed, and nothing was added to their batch for so long",
        attribute="staged_append_expiration_ms",
        minimum=1000,
        own=True,
    ),
    Option(
        "staged.append.check-interval",
        Kind.DURATION,
        "30 s",
        "time between looks for staged rows to remove",
        attribute="staged_append_check_interval_ms",
        minimum=10,
        own=True,
    ),
    Option(
        "staged.append.max-bucket-size",
        Kind.SIZE,
        "64gb",
        "bytes that may be staged and not committed in one bucket",
        attribute="staged_append_max_bucket_bytes",
        minimum=1,
        own=True,
    ),
    Option(
        "staged.append.max-size",
        Kind.SIZE,
        "256gb",
        "bytes that may be staged and not committed in all buckets; every tablet has its share",
        attribute="staged_append_max_bytes",
        minimum=1,
        own=True,
    ),
]
