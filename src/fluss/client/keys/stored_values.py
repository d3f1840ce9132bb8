"""Conversion of stored values to rows: dicts or Arrow columns; values of other schemas are matched by column id.

Rows have the columns of the table as of when it was opened. Values that were written with another schema have its id;
an unknown id is requested once (`learn`), then decoding continues.

`RowReader` may be used by any thread: schemas are only ever added.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fluss.client.decode.materialize import column_values
from fluss.client.decode.table_schemas import fetch_schema
from fluss.client.keys.row_function import Convert, RowFunction, can_generate, row_function
from fluss.client.net.metadata import ClientTable
from fluss.client.net.session import Session
from fluss.codec.arrow.types import to_arrow_schema
from fluss.codec.batches.kv_values import SCHEMA_ID_BYTES, ValueReader, value_schema_id
from fluss.codec.rows.arrow_values import column_from_values
from fluss.codec.rows.columns import RowFormat
from fluss.codec.rows.values import CorruptRowError
from fluss.errors import ErrorCode, FlussError
from fluss.model.properties import KV_FORMAT
from fluss.model.schema import Schema
from fluss.model.types import DataType, DecimalType, TimestampLtzType, TimestampType

_EPOCH_DAY = datetime.date(1970, 1, 1).toordinal()
_EPOCH = datetime.datetime(1970, 1, 1)
_EPOCH_UTC = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_PLAIN_ROOTS = frozenset(
    {"BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "FLOAT", "DOUBLE", "CHAR", "STRING", "BINARY", "BYTES"}
)


class RowReader:
    """Decodes the stored rows of one table."""

    def __init__(self, session: Session, table: ClientTable) -> None:
        self._session = session
        self._table = table
        self._schemas: dict[int, Schema] = {table.schema_id: table.schema}
        row_format = RowFormat[(table.property(KV_FORMAT) or "COMPACTED").upper()]
        self._reader = ValueReader(self._schemas, table.schema_id, row_format)
        self._names = table.schema.column_names
        self._converts = [_convert(data_type) for data_type in table.schema.data_types]
        self._fast: RowFunction | None = None
        if row_format is RowFormat.COMPACTED and can_generate(table.schema):
            self._fast = row_function(table.schema, table.schema_id, self._converts)
        self._special = [index for index, convert in enumerate(self._converts) if convert is not None]
        arrow_schema = to_arrow_schema(table.schema)
        self.arrow_schema = arrow_schema
        # Keys that are not found are rows of nulls, so all columns of a result are nullable.
        self.nullable_schema = pa.schema([field.with_nullable(True) for field in arrow_schema])

    # ---- schemas ----

    def unknown_schema(self, value: bytes) -> int | None:
        """The schema id of a value if it is not known yet."""
        schema_id = value_schema_id(value)
        return None if schema_id in self._schemas else schema_id

    def unknown_schemas(self, values: Iterable[bytes]) -> set[int]:
        """The unknown schema ids of many values."""
        return {
            int.from_bytes(prefix, "little", signed=True) for prefix in {value[:SCHEMA_ID_BYTES] for value in values}
        } - set(self._schemas)

    def unknown_schemas_of(self, values: pa.Array) -> set[int]:
        """The unknown schema ids of the values in a binary array."""
        prefixes = pc.unique(pc.binary_slice(values, 0, SCHEMA_ID_BYTES))
        return self.unknown_schemas(prefixes.to_pylist())

    async def learn(self, schema_ids: Iterable[int]) -> None:
        """Ask the coordinator for schemas; awaited in the user's event loop."""
        await self._session.awaitable(self.learn_on_io(schema_ids))

    async def learn_on_io(self, schema_ids: Iterable[int]) -> None:
        """Ask the coordinator for schemas; runs on the I/O thread."""
        for schema_id in schema_ids:
            self._schemas[schema_id] = await fetch_schema(self._session.cluster, self._table.path, schema_id)

    # ---- one row ----

    def row(self, value: bytes) -> dict[str, Any]:
        """One value as a dict."""
        fast = None if self._fast is None else self._fast(value)
        if fast is not None:
            return fast
        try:
            values = self._reader.row(value)
        except CorruptRowError as error:
            raise self._corrupt(error) from None
        for index in self._special:
            if values[index] is not None:
                values[index] = self._converted(index, values[index])
        return dict(zip(self._names, values, strict=True))

    def _converted(self, index: int, value: object) -> object:
        convert = self._converts[index]
        assert convert is not None
        try:
            return convert(value)
        except (OverflowError, ValueError):  # outside of Python's calendar: the Arrow path raises an error
            return _through_arrow(self._table.schema.data_types[index])(value)

    # ---- many rows ----

    def batch(self, values: pa.Array, wanted: Collection[int] | None = None) -> pa.RecordBatch:
        """A binary array of values without nulls as a record batch; columns that are not `wanted` may be all nulls."""
        try:
            columns = self._reader.columns(values, wanted)
        except CorruptRowError as error:
            raise self._corrupt(error) from None
        return pa.RecordBatch.from_arrays(columns, schema=self.arrow_schema)

    def aligned(self, values: Sequence[bytes | None]) -> pa.RecordBatch:
        """A record batch with one row per value; rows of nulls for missing ones."""
        found = [value for value in values if value is not None]
        batch = self.batch(pa.array(found, pa.binary()))
        if len(found) == len(values):
            return pa.RecordBatch.from_arrays(batch.columns, schema=self.nullable_schema)
        missing = np.fromiter((value is None for value in values), np.bool_, len(values))
        indices = pa.array(np.cumsum(~missing) - 1, mask=missing)
        return pa.RecordBatch.from_arrays(
            [column.take(indices) for column in batch.columns], schema=self.nullable_schema
        )

    def rows(self, values: Sequence[bytes | None]) -> list[dict[str, Any] | None]:
        """One dict per value, None for missing ones."""
        found = [value for value in values if value is not None]
        if not found:
            return [None] * len(values)
        made = iter(rows_of(self.batch(pa.array(found, pa.binary()))))
        return [None if value is None else next(made) for value in values]

    def _corrupt(self, error: CorruptRowError) -> FlussError:
        text = f"a row of table {self._table.path} cannot be read: {error}"
        return FlussError(text, ErrorCode.CORRUPT_RECORD_EXCEPTION)


def rows_of(batch: pa.RecordBatch) -> list[dict[str, object]]:
    """The rows of a record batch as dicts."""
    names = batch.schema.names
    columns = [column_values(column) for column in batch.columns]
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


# ---- logical values to Python's ----


def _convert(data_type: DataType) -> Convert | None:
    """The conversion of a logical value to Python; None if they are the same."""
    root = data_type.root
    if root in _PLAIN_ROOTS:
        return None
    if root == "DATE":
        return lambda days: datetime.date.fromordinal(days + _EPOCH_DAY)
    if isinstance(data_type, DecimalType):
        scale = data_type.scale
        return lambda unscaled: decimal.Decimal(unscaled).scaleb(-scale, _EXACT)
    if isinstance(data_type, (TimestampType, TimestampLtzType)) and not data_type.precision:
        return _through_arrow(data_type)  # whole seconds
    if root == "TIMESTAMP_WITHOUT_TIME_ZONE":
        return lambda pair: _EPOCH + datetime.timedelta(milliseconds=pair[0], microseconds=pair[1] // 1000)
    if root == "TIMESTAMP_WITH_LOCAL_TIME_ZONE":
        return lambda pair: _EPOCH_UTC + datetime.timedelta(milliseconds=pair[0], microseconds=pair[1] // 1000)
    return _through_arrow(data_type)


_EXACT = decimal.Context(prec=80)


def _through_arrow(data_type: DataType) -> Convert:
    """Conversion of times and nested values, as in scanners."""
    return lambda value: column_values(column_from_values([value], data_type))[0]
