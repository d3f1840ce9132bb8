"""The way in which rows are written to a table, from the user's options and the abilities of the server.

| way | table | when | guarantee |
|---|---|---|---|
| `upsert` | primary key | by default | rows are written as they arrive; writing them again changes nothing |
| `last_rows` | primary key | `delivery=exactly-once` | the last row of every key is written, when a task has all rows |
| `staged` | log | our server | rows are visible at the commit, bucket by bucket; repeated batches are recognised |
| `spooled` | log | other servers | rows are appended when a task has all of them; finished batches are remembered |
| `plain` | log | `delivery=at-least-once` | rows are appended at once; repeated rows are duplicated |

The merge engine `aggregation` combines every new row with the stored one. No server remembers which rows it has
combined, so repeated rows count again: exactly-once is impossible. With `first_row` the first row of a key stays,
whatever attempt it comes from, so `upsert` is exactly-once.
"""

from __future__ import annotations

import functools
import logging
from typing import Literal

from fluss.api.staged import supports_staging
from fluss.errors import FlussError
from fluss.model.properties import MERGE_ENGINE
from fluss.spark.options.parsing import Delivery, WriteOptions
from fluss.spark.sessions.connection_cache import OpenTable

Way = Literal["upsert", "last_rows", "staged", "spooled", "plain"]

REPEATABLE_FUNCTIONS = frozenset(
    {"max", "min", "bool_and", "bool_or", "rbm32", "rbm64"}
    | {"first_value", "first_value_ignore_nulls", "last_value", "last_value_ignore_nulls"}
)
"""Aggregation functions whose result does not change if all rows are repeated."""

logger = logging.getLogger(__name__)


def choose_way(opened: OpenTable, write: WriteOptions) -> Way:
    """The best way that the server supports, or the one the user asks for; `FlussError` if that is impossible."""
    if opened.info.has_primary_key():
        if write.transaction_is_said:
            raise FlussError(
                f"options transaction and transactionBatch are for log tables, but {opened.info.table_path} has a "
                "primary key: its rows are upserted at once, even if a job is repeated. Leave the options out"
            )
        return _way_of_keys(opened, write.delivery)
    if write.delivery == "at-least-once":
        if write.transaction_is_said:
            raise FlussError(
                f"options transaction and transactionBatch write to {opened.info.table_path} exactly once, but "
                "delivery=at-least-once may write repeated rows again: leave one or the other out"
            )
        return "plain"
    if supports_staging(opened.connection):
        return "staged"
    if write.delivery == "exactly-once":
        raise FlussError(
            f"option delivery=exactly-once: the server of table {opened.info.table_path} has no staged appends, so an "
            "interrupted append may leave duplicate rows. Leave the option out for the best that this "
            "server supports, or write to a primary-key table"
        )
    return "spooled"


def _way_of_keys(opened: OpenTable, delivery: Delivery | None) -> Way:
    engine = opened.info.get_properties().get(MERGE_ENGINE, "").lower()
    if engine == "aggregation":
        if delivery == "exactly-once":
            raise FlussError(
                f"option delivery=exactly-once: table {opened.info.table_path} has the merge engine aggregation, which "
                "combines each new row with the stored one, so rows of a repeated task, job or micro-batch "
                "count again. Leave the option out, or aggregate in Spark and write to a table without merge engine"
            )
        if delivery is None:
            _warn_of_repetition(str(opened.info.table_path), _aggregated_columns(opened))
    elif engine != "first_row" and delivery == "exactly-once":
        return "last_rows"
    return "upsert"


def _aggregated_columns(opened: OpenTable) -> tuple[str, ...]:
    """Descriptions of the columns whose aggregate counts a row twice if it is written twice."""
    functions = {column.name: column.agg_function for column in opened.access.schema.columns}
    return tuple(
        f"{name} ({function['type']})"
        for name, function in functions.items()
        if function is not None and function["type"] not in REPEATABLE_FUNCTIONS
    )


@functools.lru_cache(maxsize=1024)
def _warn_of_repetition(table: str, columns: tuple[str, ...]) -> None:
    """Warn that repeated rows count again, once per process and table."""
    if columns:
        logger.warning(
            "table %s aggregates new values in %s: rows of tasks and micro-batches that Spark repeats count again. To "
            "accept that without this warning, set delivery=at-least-once",
            table,
            ", ".join(columns),
        )
