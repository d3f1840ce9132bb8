"""`fluss.spark.lookup_join`: rows of a DataFrame, batch or stream, joined with a primary-key table by lookups.

Spark's own join reads the whole table for every query and every batch of a stream. Here every task looks up the keys of
its rows at the servers, thousands at a time, and sees the rows that exist at that moment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa

from fluss.client.engine.values import FitRules
from fluss.codec.rows.columns import RowFormat
from fluss.errors import FlussError
from fluss.model.schema import Column, Schema
from fluss.spark.convert.arrow import SparkInput, check_types, for_spark, spark_arrow_schema
from fluss.spark.convert.column_names import chosen_columns, find_column
from fluss.spark.convert.types import to_spark_schema
from fluss.spark.options.parsing import FlussOptions, parse_options
from fluss.spark.sessions.connection_cache import OpenTable, open_table
from fluss.spark.sessions.outage_retries import patiently
from fluss.spark.sessions.session_cluster import table_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from fluss.api.lookup import Lookuper
    from fluss.codec.rows.varint import Bools

How = Literal["left", "inner"]


def lookup_join(
    frame: DataFrame,
    table: str,
    on: Mapping[str, str] | Sequence[str] | None = None,
    *,
    how: How = "left",
    columns: Sequence[str] | None = None,
    options: Mapping[str, object] | None = None,
) -> DataFrame:
    """Add columns of a primary-key table to every row, looked up by key when the row is processed::

        fluss.spark.lookup_join(orders, "shop.customers", {"id": "customer_id"}, columns=["name", "city"])

    `on` maps the parts of the primary key to columns of the frame, `{key column: column}`; without it they have the
    same names. All columns but the key are added, or those of `columns`. Rows without a match, or with a null in their
    key, get nulls; with `how="inner"` they are left out. `options` as for `format("fluss")`.
    """
    if how not in ("left", "inner"):
        raise FlussError(f"lookup_join: how must be left or inner, got {how!r}")
    settings = parse_options(table_options(frame.sparkSession, table, **(options or {})))
    with open_table(settings) as opened:
        join = _planned(opened, settings, frame.schema, on, columns, is_inner=how == "inner")
    return frame.mapInArrow(join, join.schema)


def _planned(
    opened: OpenTable,
    settings: FlussOptions,
    rows: StructType,
    on: Mapping[str, str] | Sequence[str] | None,
    columns: Sequence[str] | None,
    *,
    is_inner: bool,
) -> _LookupJoin:
    from pyspark.sql.types import StructField, StructType

    info = opened.info
    key = info.get_primary_keys()
    if not key:
        raise FlussError(f"lookup_join needs a primary-key table, but {info.table_path} has no primary key")
    found = to_spark_schema(info, None, settings.nanos_as)
    if isinstance(columns, str):
        raise FlussError(f"lookup_join: columns must be a list, got the string {columns!r}: write [{columns!r}]")
    names = [name for name in found.names if name not in key]
    if columns is not None:
        names = chosen_columns(columns, found.names, f"table {info.table_path}")
    for name in names:
        if name.lower() in {each.lower() for each in rows.names}:
            raise FlussError(
                f"lookup_join: column {name!r} is in the frame and in {info.table_path}: rename it in the frame, or "
                "choose others with columns=[...]"
            )
    places = _places(key, on, rows.names)
    table = opened.access
    keys = Schema(tuple(Column(name, table.schema.columns[table.schema.position(name)].data_type) for name in key))
    asked = StructType([StructField(name, rows[place].dataType) for name, place in zip(key, places, strict=True)])
    check_types(spark_arrow_schema(asked), keys, settings.nanos_as)
    added = StructType([StructField(name, found[name].dataType, True, found[name].metadata) for name in names])
    schema = StructType([*rows.fields, *added.fields])
    return _LookupJoin(settings, schema, added, tuple(places), keys, table.row_format, is_inner)


def _places(key: Sequence[str], on: Mapping[str, str] | Sequence[str] | None, names: Sequence[str]) -> list[int]:
    """The positions in the frame of the columns that are the parts of the key."""
    if isinstance(on, str):
        raise FlussError(f"lookup_join: on must be a list or a map, got the string {on!r}: write [{on!r}]")
    given = dict.fromkeys(key) if on is None else dict(on) if isinstance(on, Mapping) else dict.fromkeys(on)
    if set(given) != set(key):
        raise FlussError(
            f"lookup_join: on must have the whole primary key ({', '.join(key)}) and nothing else, got {on!r}"
        )
    places = []
    for name in key:
        column = given[name] or name
        place = find_column(column, names, "lookup_join")
        if place is None:
            raise FlussError(
                f"lookup_join: unknown column {column!r} for {name!r} of the primary key; the columns of the frame are "
                f"{', '.join(names)}: give on={{{name!r}: ...}}"
            )
        places.append(place)
    return places


@dataclass(frozen=True)
class _LookupJoin:
    """The function that tasks apply to their batches; a plain value that Spark pickles."""

    options: FlussOptions
    schema: StructType
    added: StructType
    places: tuple[int, ...]
    keys: Schema
    row_format: RowFormat | None
    is_inner: bool

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        patience_seconds = self.options.read.poll_timeout_ms / 1000
        target = spark_arrow_schema(self.added)
        rules = FitRules(row_format=self.row_format, is_key=True)
        given = SparkInput(f"{self.options.table} (lookup)", self.keys, self.options.nanos_as, rules)
        with open_table(self.options) as opened:
            lookuper = opened.table.new_lookup().create_lookuper()
            for batch in batches:
                keys = [batch.column(place) for place in self.places]
                has_key = np.all([np.asarray(column.is_valid()) for column in keys], axis=0)
                asked = given.rows([column.filter(pa.array(has_key)) for column in keys])
                found = patiently(partial(_look_up, lookuper, asked), patience_seconds)
                yield self._joined(batch, has_key, found.combine_chunks(), target)

    def _joined(self, batch: pa.RecordBatch, has_key: Bools, found: pa.Table, target: pa.Schema) -> pa.RecordBatch:
        """Join a batch with `found`, which has one row for every requested key, all null if there is no such row."""
        (rows,) = found.to_batches() or [pa.RecordBatch.from_pylist([], found.schema)]
        is_found = np.asarray(rows.column(self.keys.column_names[0]).is_valid())
        place = np.cumsum(has_key) - 1
        if self.is_inner:
            kept = has_key.copy()
            kept[has_key] = is_found
            batch, rows = batch.filter(pa.array(kept)), rows.filter(pa.array(is_found))
        else:
            rows = rows.take(pa.array(place, mask=~has_key))
        added = for_spark(rows, target)
        schema = pa.schema([*batch.schema, *target])
        return pa.RecordBatch.from_arrays([*batch.columns, *added.columns], schema=schema)


def _look_up(lookuper: Lookuper, keys: pa.RecordBatch) -> pa.Table:
    found: pa.Table = asyncio.run(lookuper.lookup_many(keys))
    return found
