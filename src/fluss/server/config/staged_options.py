"""The server options of staged appends; collected by `options`."""

from __future__ import annotations

from fluss.server.config.option import Kind, Option

STAGED_OPTIONS = [
    Option(
        "staged.append.expiration",
        Kind.DURATION,
        "1 h",
        "uncommitted staged rows are removed when nothing was added to their batch for this time",
        attribute="staged_append_expiration_ms",
        minimum=1000,
        own=True,
    ),
    Option(
        "staged.append.check-interval",
        Kind.DURATION,
        "30 s",
        "interval of checks for staged rows to remove",
        attribute="staged_append_check_interval_ms",
        minimum=10,
        own=True,
    ),
    Option(
        "staged.append.max-bucket-size",
        Kind.SIZE,
        "64gb",
        "limit of staged, uncommitted bytes in one bucket",
        attribute="staged_append_max_bucket_bytes",
        minimum=1,
        own=True,
    ),
    Option(
        "staged.append.max-size",
        Kind.SIZE,
        "256gb",
        "limit of staged, uncommitted bytes in all buckets; each tablet gets an equal share",
        attribute="staged_append_max_bytes",
        minimum=1,
        own=True,
    ),
]
