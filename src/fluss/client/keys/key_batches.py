"""Lookups of many keys at once: encoded, hashed and decoded column by column.

Keys are sent in asks of `KEYS_PER_ASK`, at most `MAX_ASKS_OUT` at a time, through the queue that single lookups use.
The work on columns is done by the decoding threads, not in the user's event loop. Keys whose partitions are no longer
in Fluss are looked up in the lake.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
import pyarrow as pa

from fluss.client.decode.decode_pool import decode_pool
from fluss.client.input.frame_input import table_of_polars
from fluss.client.keys.lookup_keys import KeyReader, Place
from fluss.client.keys.lookup_queue import NO_PARTITION, LookupQueue
from fluss.client.keys.lookup_request import Ask
from fluss.client.keys.stored_values import RowReader, rows_of
from fluss.client.net.session import Session
from fluss.errors import FlussError

if TYPE_CHECKING:
    from fluss.client.keys.lookup_keys import KeyGroup
    from fluss.codec.rows.varint import Int64s

KEYS_PER_ASK = 4_096
MAX_ASKS_OUT = 8

Found = list[bytes | None]


class FoundRows(Protocol):
    """Rows, and for each one the position of its key among the requested keys."""

    @property
    def rows(self) -> pa.RecordBatch: ...

    @property
    def positions(self) -> Int64s: ...


class OtherRows(Protocol):
    """The source of rows whose partitions are no longer in Fluss: the lake of the table."""

    def find(self, keys: pa.RecordBatch) -> FoundRows:
        """Blocks."""


async def look_up_many(
    session: Session,
    keys: KeyReader,
    rows: RowReader,
    queue: LookupQueue,
    lake: OtherRows | None,
    given: Any,
    output: Literal["arrow", "rows"] | None,
) -> pa.Table | list[dict[str, object] | None]:
    """Look up many keys, see `Lookuper.lookup_many`."""
    session.check_open()
    if output not in (None, "arrow", "rows"):
        raise FlussError(f"output must be 'arrow' or 'rows', got {output!r}")
    if hasattr(given, "to_arrow"):  # polars
        given = table_of_polars(given)
    is_frame = hasattr(given, "iloc")  # pandas
    is_arrow = is_frame or isinstance(given, (pa.Table, pa.RecordBatch))
    if not is_arrow and (isinstance(given, (str, bytes, dict)) or not isinstance(given, Iterable)):
        raise FlussError(f"lookup_many takes Arrow data or an iterable of keys, got {type(given).__name__}")
    loop = asyncio.get_running_loop()
    pool = decode_pool()

    def prepare() -> tuple[pa.RecordBatch, list[KeyGroup]]:
        arrow = keys.table_of_frame(given) if is_frame else given
        batch = keys.batch_of_arrow(arrow) if is_arrow else keys.batch_of_rows(given)
        return batch, keys.groups(batch)

    batch, groups = await loop.run_in_executor(pool, prepare)
    values: Found = [None] * batch.num_rows
    await _ask_all(queue, _portions(groups), values)
    others = [position for position, value in enumerate(values) if value is NO_PARTITION] if lake is not None else []
    elsewhere: tuple[pa.RecordBatch, Int64s] | None = None
    if others:
        assert lake is not None
        elsewhere = await loop.run_in_executor(None, _find_in_lake, lake, batch, others)
        for position in others:
            values[position] = None
    unknown = rows.unknown_schemas(value for value in values if value is not None)
    if unknown:
        await rows.learn(unknown)
    if output == "rows" or (output is None and not is_arrow):
        return await loop.run_in_executor(pool, _as_rows, rows, values, elsewhere)
    return await loop.run_in_executor(pool, _as_table, rows, values, elsewhere)


def _find_in_lake(lake: OtherRows, keys: pa.RecordBatch, positions: list[int]) -> tuple[pa.RecordBatch, Int64s]:
    """Rows of keys whose partitions are not in Fluss, and the positions of their keys."""
    found = lake.find(keys.take(pa.array(positions)))
    return found.rows, np.asarray(positions)[found.positions]


def _as_rows(
    rows: RowReader, values: Found, elsewhere: tuple[pa.RecordBatch, Int64s] | None
) -> list[dict[str, object] | None]:
    made = rows.rows(values)
    if elsewhere is not None:
        for row, position in zip(rows_of(elsewhere[0]), elsewhere[1].tolist(), strict=True):
            made[position] = row
    return made


def _as_table(rows: RowReader, values: Found, elsewhere: tuple[pa.RecordBatch, Int64s] | None) -> pa.Table:
    table = pa.Table.from_batches([rows.aligned(values)], rows.nullable_schema)
    if elsewhere is None:
        return table
    more, positions = elsewhere
    order = np.arange(len(values))
    order[positions] = len(values) + np.arange(len(positions))
    added = pa.Table.from_arrays(more.columns, schema=rows.nullable_schema)
    return pa.concat_tables([table, added]).take(pa.array(order))


def _portions(groups: list[KeyGroup]) -> Iterator[tuple[Place, Int64s, list[bytes]]]:
    for place, positions, keys in groups:
        for start in range(0, len(positions), KEYS_PER_ASK):
            yield place, positions[start : start + KEYS_PER_ASK], keys.slice(start, KEYS_PER_ASK).to_pylist()


async def _ask_all(queue: LookupQueue, portions: Iterator[tuple[Place, Int64s, list[bytes]]], values: Found) -> None:
    """Send all portions with a few workers; the first error ends them all."""

    async def work() -> None:
        for place, positions, keys in portions:
            for position, value in zip(positions.tolist(), await _ask(queue, place, keys), strict=True):
                values[position] = value

    workers = [asyncio.ensure_future(work()) for _ in range(MAX_ASKS_OUT)]
    try:
        await asyncio.gather(*workers)
    finally:
        for worker in workers:
            worker.cancel()


async def _ask(queue: LookupQueue, place: Place, keys: list[bytes]) -> Found:
    await queue.room()
    ask = Ask(place, keys, asyncio.get_running_loop())
    queue.submit(ask)
    return await ask.future
