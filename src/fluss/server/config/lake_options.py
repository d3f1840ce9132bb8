"""The server options of the lake; collected by `options`."""

from __future__ import annotations

from fluss.server.config.option import Kind, Option

LAKE_OPTIONS = [
    Option(
        "datalake.format",
        Kind.STRING,
        None,
        "lake format that new tables record (`iceberg`); if not set, only tables that enable the lake record it",
        attribute="datalake_format",
    ),
    Option(
        "datalake.enabled",
        Kind.BOOLEAN,
        None,
        "`false`: no table may enable the lake",
        special=True,
    ),
    Option(
        "lake.request.timeout",
        Kind.DURATION,
        "20 s",
        "time limit of requests to the lake's catalog and storage",
        attribute="lake_request_timeout_ms",
        minimum=1,
        own=True,
    ),
    Option(
        "lake.tiering.heartbeat-timeout",
        Kind.DURATION,
        "2 min",
        "after this time without a heartbeat of its tiering service, a table is assigned to another one",
        attribute="lake_tiering_timeout_ms",
        minimum=1,
        own=True,
    ),
    Option(
        "lake.tiering.check-interval",
        Kind.DURATION,
        "15 s",
        "interval of checks for silent tiering services",
        attribute="lake_tiering_check_interval_ms",
        minimum=1,
        own=True,
    ),
    Option(
        "lake.expired-partition.max-wait",
        Kind.DURATION,
        "7 d",
        "how long an expired partition of a table with a lake may wait to be tiered completely before it is dropped",
        attribute="lake_expired_partition_max_wait_ms",
        minimum=0,
        own=True,
    ),
]
