"""The server options of the lake; part of the table in `config_options`."""

from __future__ import annotations

from fluss.server.config_option import Kind, Option

LAKE_OPTIONS = [
    Option(
        "datalake.format",
        Kind.STRING,
        None,
        "lake format that new tables record, here `iceberg`; without it only tables that enable the lake record it",
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
        "how long a request waits for the lake's catalog and storage",
        attribute="lake_request_timeout_ms",
        minimum=1,
        own=True,
    ),
]
