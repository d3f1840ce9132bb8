"""Arrow tables, record batches and data frames of users, brought into the form of a table.

Columns are found by name and may come in any order; a column that is missing is null, an unknown one is refused.
Other Arrow forms of the same values (large strings, dictionaries, wider integers, lists with other field names) are
cast, and a cast that would change a value fails with column and type. The result has exactly the table's Arrow
schema.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any, NoReturn

import pyarrow as pa

from fluss.codec.arrow_types import to_arrow_schema
from fluss.errors import FlussError
from fluss.model.schema import Schema


class ArrowInput:
    """The rules of one table. Used by any thread."""

    def __init__(self, table: str, schema: Schema, required: Sequence[str] = ()) -> None:
        self.arrow_schema = to_arrow_schema(schema)
        self._table = table
        self._schema = schema
        self._names = list(schema.column_names)
        self._types = self.arrow_schema.types
        self._required = [
            index
            for index, column in enumerate(schema.columns)
            if not column.data_type.nullable or column.name in required
        ]

    def conform(self, batch: Any) -> Any:
        """A record batch with the table's schema, copied only where a cast is needed."""
        if not isinstance(batch, pa.RecordBatch):
            raise FlussError(f"write_arrow_batch takes a pyarrow.RecordBatch, got {type(batch).__name__}")
        if batch.schema.names != self._names or batch.schema.types != self._types:
            batch = self._cast(batch)
        for index in self._required:
            if batch.column(index).null_count:
                column = self._schema.columns[index]
                self._refuse(f"column {column.name!r} ({column.data_type}) must not be null, but a row of it is")
        return batch

    def batches(self, table: Any, call: str = "write_arrow") -> list[Any]:
        """The record batches of an Arrow table, without copying. `call` is what the user called, for errors."""
        if isinstance(table, pa.RecordBatch):
            return [table]
        if not isinstance(table, pa.Table):
            raise FlussError(f"{call} takes a pyarrow.Table, got {type(table).__name__}")
        batches: list[Any] = table.to_batches()
        return batches

    def from_pandas(self, frame: Any, call: str = "write_pandas") -> Any:
        """A data frame as an Arrow table, its index left out."""
        try:
            pandas = importlib.import_module("pandas")
        except ImportError:
            raise FlussError(f"{call} needs pandas, which is not installed: pip install 'flusspy[pandas]'") from None
        if not isinstance(frame, pandas.DataFrame):
            raise FlussError(f"{call} takes a pandas.DataFrame, got {type(frame).__name__}")
        self._check_names([str(name) for name in frame.columns])
        fields = [self.arrow_schema.field(name) for name in map(str, frame.columns)]
        nullable = pa.schema([field.with_nullable(True) for field in fields])
        try:
            return pa.Table.from_pandas(frame, schema=nullable, preserve_index=False)
        except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
            return self._refuse(f"the data frame cannot be converted: {error}")

    def _cast(self, batch: Any) -> Any:
        self._check_names(batch.schema.names)
        given = {name: index for index, name in enumerate(batch.schema.names)}
        arrays = []
        for name, arrow_type in zip(self._names, self._types, strict=True):
            index = given.get(name)
            if index is None:
                arrays.append(pa.nulls(batch.num_rows, arrow_type))
                continue
            array = batch.column(index)
            arrays.append(array if array.type == arrow_type else self._cast_column(name, array, arrow_type))
        return pa.RecordBatch.from_arrays(arrays, schema=self.arrow_schema)

    def _cast_column(self, name: str, array: Any, arrow_type: Any) -> Any:
        both_timestamps = pa.types.is_timestamp(array.type) and pa.types.is_timestamp(arrow_type)
        if both_timestamps and array.type.tz is not None and arrow_type.tz is None:
            self._refuse(f"column {name!r} has no time zone, the Arrow column is {array.type}")
        try:
            return array.cast(arrow_type)
        except (pa.ArrowException, ValueError, TypeError) as error:
            data_type = self._schema.columns[self._schema.position(name)].data_type
            return self._refuse(f"column {name!r} expects {data_type} ({arrow_type}), got {array.type}: {error}")

    def _check_names(self, names: Sequence[str]) -> None:
        for index, name in enumerate(names):
            if name not in self._schema:
                self._refuse(f"it has no column {name!r}; its columns are {', '.join(self._names)}")
            if name in names[:index]:
                self._refuse(f"column {name!r} is there twice")

    def _refuse(self, text: str) -> NoReturn:
        raise FlussError(f"the rows do not fit table {self._table}: {text}")
