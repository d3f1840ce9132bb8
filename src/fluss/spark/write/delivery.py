"""Which way rows take to a table, by what the user wants and what the server can.

| way | table | server | what holds |
|---|---|---|---|
| `upsert` | primary key | any | written at once; doing it again changes nothing |
| `staged` | log | ours | visible at the commit, bucket by bucket within moments; a repeated batch is recognised |
| `spooled` | log | without staged appends | appended when a task has all its rows; finished batches are remembered |
| `plain` | log | any, `delivery=at-least-once` | appended at once; what is repeated is there twice |
"""

from __future__ import annotations

from typing import Literal

from fluss.client.staged import supports_staging
from fluss.errors import FlussError
from fluss.spark.connecting import OpenTable
from fluss.spark.options import Delivery

Way = Literal["upsert", "staged", "spooled", "plain"]


def choose_way(opened: OpenTable, delivery: Delivery | None) -> Way:
    """The best that the server can, or what the user asks for; `FlussError` if it cannot be had."""
    if opened.info.has_primary_key():
        return "upsert"
    if delivery == "at-least-once":
        return "plain"
    if supports_staging(opened.connection):
        return "staged"
    if delivery == "exactly-once":
        raise FlussError(
            f"option delivery=exactly-once: the server of table {opened.info.table_path} has no staged appends, so a "
            "task that dies while it appends may leave rows twice. Leave the option out for the best that this server "
            "can, or write to a primary-key table"
        )
    return "spooled"
