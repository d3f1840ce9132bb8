"""Arrow tables, record batches and streams of users, converted to the schema of a table.

Columns are found by name and may come in any order; a missing column is null, an unknown one is refused. Every
value goes through the fit of its column (`fluss.client.fitting`): other Arrow forms of the same values are converted,
values that would change are refused with column, type, row and value. The result has exactly the table's Arrow schema,
and its arrays are fully validated: a string that is not UTF-8 would make a log unreadable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn, Protocol

import pyarrow as pa

from fluss.client.fitting import Fit, FitRules, UnfitTypeError, UnfitValueError, fit_of
from fluss.client.fitting.base import check_meaning, shown
from fluss.client.fitting.places import PlaceRules, placed
from fluss.client.input.arrow_validity import nested_columns, validate_array, validate_batch
from fluss.client.input.bad_values import first_bad_row, shown_scalar, taken
from fluss.codec.arrow.types import to_arrow_schema
from fluss.errors import ErrorCode, FlussError
from fluss.model.schema import Schema

if TYPE_CHECKING:
    from fluss.client.fitting.base import Fit

# Converted columns of a whole call are kept up to this size; batches beyond it are converted again when they are sent.
MAX_KEPT_COPIES_BYTES = 256 * 1024 * 1024

_PLAIN_RULES = FitRules()
NO_PLACE_RULES: PlaceRules = {}


class BatchCheck(Protocol):
    """A check of a conforming batch that may raise; `is_all` if it is the only batch of the call."""

    def __call__(self, batch: pa.RecordBatch, *, is_all: bool) -> None:
        """Check the batch."""


class ArrowInput:
    """Converts Arrow data for one table. Used by any thread. Digits of the columns in `exact` are never cut off.

    `places` has the rules of columns that decide where a row goes.
    """

    def __init__(
        self,
        table: str,
        schema: Schema,
        required: Sequence[str] = (),
        rules: FitRules = _PLAIN_RULES,
        exact: Sequence[str] = (),
        places: PlaceRules = NO_PLACE_RULES,
    ) -> None:
        self.arrow_schema = to_arrow_schema(schema)
        self.schema = schema
        self._table = table
        self._names = list(schema.column_names)
        self._types = self.arrow_schema.types
        self._nested = nested_columns(self._types)
        self.fits = column_fits(schema, rules, exact, places)
        self._looks_closer = [index for index, fit in enumerate(self.fits) if fit.looks_closer]
        self._required = [
            index
            for index, column in enumerate(schema.columns)
            if not column.data_type.nullable or column.name in required
        ]

    def conform(self, batch: pa.RecordBatch, source: Source | None = None) -> pa.RecordBatch:
        """A record batch with the table's schema, copied only where values change their form."""
        if not isinstance(batch, pa.RecordBatch):
            raise FlussError(f"write_arrow_batch takes a pyarrow.RecordBatch, got {type(batch).__name__}")
        source, given_names = source or Source(batch), batch.schema.names
        types = batch.schema.types
        is_same = types == self._types and batch.schema.names == self._names
        try:
            validate_batch(batch, self._nested if is_same else nested_columns(types))
        except pa.ArrowException as error:
            self._refuse_invalid(batch, source, error)
        if not batch.schema.equals(self.arrow_schema, check_metadata=True):
            self._check_meanings(batch.schema)
        if not is_same or self._looks_closer:
            batch = self._converted(batch, source)
        elif not batch.schema.equals(self.arrow_schema):
            # Only nullability differs. Batches that differ in it cannot be joined later.
            batch = pa.RecordBatch.from_arrays(batch.columns, schema=self.arrow_schema)
        for index in self._required:
            if batch.column(index).null_count:
                column = self.schema.columns[index]
                row = batch.column(index).is_null().index(True).as_py()
                text = f"column {column.name!r} ({column.data_type}) must not be null, but "
                if column.name not in given_names:
                    self.refuse(f"{text}the rows do not have it: add the column")
                self.refuse(f"{text}is null{source.place(column.name, row)}: write a value")
        return batch

    def batches(
        self,
        table: pa.Table | pa.RecordBatch,
        call: str = "write_arrow",
        first_row: int = 0,
        check: BatchCheck | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Conforming record batches of an Arrow table or batch. All rows are checked before the first is returned.

        `call` is the name of the public method and `first_row` the position of the batch in its stream, both for
        errors. `check` may refuse a batch for later reasons.
        """
        if isinstance(table, pa.RecordBatch):
            made = self.conform(table, Source(table, first_row))
            if check is not None:
                check(made, is_all=True)
            return iter([made])
        if not isinstance(table, pa.Table):
            raise FlussError(f"{call} takes a pyarrow.Table, got {type(table).__name__}")
        if not table.num_rows:
            self.conform(pa.RecordBatch.from_pylist([], table.schema))
        given, kept, copied_bytes = table.to_batches(), [], 0
        for batch in given:
            made = self.conform(batch, Source(table, first_row))
            if check is not None:
                check(made, is_all=len(given) == 1)
            first_row += batch.num_rows
            copied_bytes += self._copied_bytes(batch, made)
            kept.append(made if copied_bytes <= MAX_KEPT_COPIES_BYTES else None)
        return (
            self._converted(batch, Source(batch)) if made is None else made
            for batch, made in zip(given, kept, strict=True)
        )

    def _copied_bytes(self, given: pa.RecordBatch, made: pa.RecordBatch) -> int:
        """The memory of the columns that were converted."""
        if made is given:
            return 0
        types = dict(zip(given.schema.names, given.schema.types, strict=True))
        return sum(
            made.column(number).nbytes
            for number, name in enumerate(self._names)
            if types.get(name) != self._types[number] or self.fits[number].looks_closer
        )

    def _check_meanings(self, given: pa.Schema) -> None:
        for field in given:
            try:
                check_meaning(field)
            except UnfitTypeError as error:
                self.check_names([field.name])
                expected = self.schema.columns[self._names.index(field.name)].data_type
                self.refuse(f"column {field.name!r} expects {expected}, got {field.type}: {error}")

    def _converted(self, batch: pa.RecordBatch, source: Source) -> pa.RecordBatch:
        self.check_names(batch.schema.names)
        given = {name: index for index, name in enumerate(batch.schema.names)}
        arrays = []
        for number, name in enumerate(self._names):
            index = given.get(name)
            if index is None:
                arrays.append(pa.nulls(batch.num_rows, self._types[number]))
            else:
                arrays.append(self._column(number, batch.column(index), source))
        return pa.RecordBatch.from_arrays(arrays, schema=self.arrow_schema)

    def _column(self, number: int, array: pa.Array, source: Source) -> pa.Array:
        fit = self.fits[number]
        try:
            return fit.array(array)
        except UnfitTypeError as error:
            self.refuse(f"column {self._names[number]!r} expects {fit.data_type}, got {array.type}: {error}")
        except UnfitValueError as error:
            row = first_bad_row(array, fit.array)
            if row is not None:
                reason = _reason_at(array, row, fit.array, error)
                self.refuse_value(number, array, row, source, reason, error.error_code)
            text = f"column {self._names[number]!r} expects {fit.data_type}, got {array.type}: {error}"
            self.refuse(text, error.error_code)

    def _refuse_invalid(self, batch: pa.RecordBatch, source: Source, error: Exception) -> NoReturn:
        """Raise for Arrow data that no reader could decode."""
        self.check_names(batch.schema.names)
        for name, array in zip(batch.schema.names, batch.columns, strict=True):
            number = self._names.index(name)
            try:
                validate_array(array)
            except pa.ArrowException as caught:
                # Values between offsets that are out of order must not be read.
                row = None if "ffset" in str(caught) else first_bad_row(array, validate_array)
                if row is not None:
                    self.refuse_value(number, array, row, source, f"{_in_words(caught)}: correct it first")
                expected = self.schema.columns[number].data_type
                text = f"column {name!r} expects {expected}, but its {array.type} array is invalid ({caught})"
                self.refuse(f"{text}: correct it first")
        self.refuse(f"the batch is invalid ({error}): correct it first")

    def refuse_value(
        self,
        number: int,
        array: pa.Array,
        row: int,
        source: Source,
        reason: str,
        error_code: int = ErrorCode.CLIENT_ERROR,
    ) -> NoReturn:
        """Raise an error that names the value and the row."""
        name, expected = self._names[number], self.schema.columns[number].data_type
        got = f"{shown_scalar(array, row)} ({array.type})"
        self.refuse(f"column {name!r} expects {expected}, got {got}{source.place(name, row)}: {reason}", error_code)

    def check_names(self, names: Sequence[str]) -> None:
        """Raise for a column that the table does not have, or that is duplicated."""
        for index, name in enumerate(names):
            if name not in self.schema:
                self.refuse(f"it has no column {name!r}; its columns are {', '.join(self._names)}")
            if name in names[:index]:
                self.refuse(f"column {name!r} is duplicated: pass it once")

    def refuse(self, text: str, error_code: int = ErrorCode.CLIENT_ERROR) -> NoReturn:
        """Raise an error about rows of the table."""
        raise FlussError(f"the rows do not fit table {self._table}: {text}", error_code)


class Source:
    """The input of a call, to name rows in errors: by their number, and by the chunk of a table."""

    def __init__(self, given: pa.RecordBatch | pa.Table, first_row: int = 0) -> None:
        self._given = given
        self._first_row = first_row

    def place(self, column: str, row: int) -> str:
        """The description of a row of the batch."""
        row += self._first_row
        if not isinstance(self._given, pa.Table):
            return f" in row {row}"
        before, index = 0, self._given.schema.get_field_index(column)
        if index < 0 or self._given.column(index).num_chunks < 2:
            return f" in row {row}"
        for number, chunk in enumerate(self._given.column(index).chunks):
            if row < before + len(chunk):
                return f" in row {row} (row {row - before} of chunk {number})"
            before += len(chunk)
        return f" in row {row}"


def column_fits(
    schema: Schema, rules: FitRules, exact: Sequence[str], places: PlaceRules = NO_PLACE_RULES
) -> list[Fit]:
    """The fits of all columns. Digits of key columns are never cut off: two keys could become one."""
    exactly = replace(rules, is_key=True)
    return [
        placed(fit_of(column.data_type, exactly if column.name in exact else rules), places.get(column.name, ()))
        for column in schema.columns
    ]


def _reason_at(array: pa.Array, row: int, convert: Callable[[pa.Array], object], error: UnfitValueError) -> str:
    """The reason for the first bad value; the array's error may be about another one."""
    try:
        convert(taken(array, row, row + 1))
    except UnfitValueError as caught:
        return str(caught)
    return str(error)


def _in_words(error: Exception) -> str:
    text = str(error)
    if "UTF8" in text:
        return "it is not UTF-8"
    if "acceptable range" in text:
        return "it is not a time of day"
    if "fit in precision" in text:
        return "it has more digits than its Arrow type allows"
    return shown(text, quoted=False)
