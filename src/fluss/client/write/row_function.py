"""The function behind `append(row)`, generated for a schema.

Measured: a generic loop over the columns takes several times as long as a function that names every column in its own
source. The generated function takes the values out of a dict, list or tuple, tests exact types and ranges in one
condition, and adds the values to one flat list: nothing that the garbage collector would have to track.

Everything but the common case goes through `RowRules`: missing keys (null), unknown keys, wrong lengths, other
mappings, NumPy numbers, long strings, nested values. `RowRules.check` also makes the error: column, type, value,
reason.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, Protocol

from fluss.client.fitting import FitRules, UnfitValueError
from fluss.client.fitting.base import shown
from fluss.client.fitting.places import PlaceRules, is_partition_value, known_partition_values
from fluss.client.fitting.strings import LONG_VALUE_BYTES, is_encodable
from fluss.client.fitting.times import MAX_NANOSECOND_DATETIME, MIN_NANOSECOND_DATETIME
from fluss.client.input.arrow_input import NO_PLACE_RULES, column_fits
from fluss.errors import ErrorCode, FlussError
from fluss.generated_code import define
from fluss.model.schema import Schema

_PLAIN_RULES = FitRules()
_VARIABLE_ROOTS = frozenset({"CHAR", "STRING", "BYTES", "BINARY", "ARRAY", "MAP", "ROW"})


class RowSink(Protocol):
    """The target of the generated function: `row_buffer.RowBuffer`, whose docstring explains the protocol."""

    flat: list[Any]
    limit: int
    handle: Any
    idle: bool

    def make_room(self) -> None: ...
    def settled(self) -> Any: ...
    def raced(self, handle: Any) -> Any: ...
    def kick(self) -> None: ...
    def add_large(self, size_bytes: int) -> None: ...


class RowRules:
    """The slow path of a row into a table, and all error messages. Digits of columns in `exact` are never cut off."""

    def __init__(
        self,
        table: str,
        schema: Schema,
        required: Sequence[str] = (),
        rules: FitRules = _PLAIN_RULES,
        exact: Sequence[str] = (),
        places: PlaceRules = NO_PLACE_RULES,
    ) -> None:
        self.table = table
        self.schema = schema
        self.names = schema.column_names
        self.nullable = [column.data_type.nullable and column.name not in required for column in schema.columns]
        self.fits = column_fits(schema, rules, exact, places)
        self.checks: list[Callable[[Any], Any]] = [fit.value for fit in self.fits]
        self.is_variable = [column.data_type.root in _VARIABLE_ROOTS for column in schema.columns]
        # Columns in which a null was seen: NumPy would turn it into a NaN, see row_columns.py. Never reset.
        self.saw_null = [False] * len(self.names)

    def values(self, row: Any) -> tuple[Any, ...]:
        """The values of a row in the order of the columns, unchecked; missing keys are null."""
        if isinstance(row, Mapping):
            present = sum(name in row for name in self.names)
            if present != len(row):
                unknown = next(key for key in row if key not in self.names)
                self._refuse(f"it has no column {unknown!r}; its columns are {', '.join(self.names)}")
            return tuple(row.get(name) for name in self.names)
        if isinstance(row, (list, tuple)):
            if len(row) != len(self.names):
                names = ", ".join(self.names)
                self._refuse(f"the row has {len(row)} values, but there are {len(self.names)} columns ({names})")
            return tuple(row)
        return self._refuse(f"a row must be a dict, list or tuple, got {shown(row)}")

    def check(self, values: Sequence[Any], sink: RowSink | None = None) -> tuple[Any, ...]:
        """The values in stored form; `FlussError` names the first column that does not fit."""
        stored: list[Any] = []
        size_bytes = 0
        for index, value in enumerate(values):
            if value is None:
                if not self.nullable[index]:
                    self._refuse_null(index)
                self.saw_null[index] = True
                stored.append(None)
                continue
            try:
                value = self.checks[index](value)
            except UnfitValueError as error:
                self._refuse_value(index, value, error)
            if self.is_variable[index]:
                size_bytes += value_bytes(value)
            stored.append(value)
        if sink is not None and size_bytes > LONG_VALUE_BYTES:
            sink.add_large(size_bytes)
        return tuple(stored)

    def note_null(self, index: int) -> bool:
        """Record a null and return True; used inside generated conditions."""
        self.saw_null[index] = True
        return True

    def checked_column(self, index: int) -> Callable[[object], object]:
        """A checker of one column that takes None and makes the whole error."""
        check = self.checks[index]

        def checked(value: object) -> object:
            if value is None:
                if not self.nullable[index]:
                    self._refuse_null(index)
                return None
            try:
                return check(value)
            except UnfitValueError as error:
                return self._refuse_value(index, value, error)

        return checked

    def _refuse(self, text: str, error_code: int = ErrorCode.CLIENT_ERROR) -> NoReturn:
        raise FlussError(f"the row does not fit table {self.table}: {text}", error_code)

    def _refuse_null(self, index: int) -> NoReturn:
        column = self.schema.columns[index]
        reason = "is NOT NULL" if not column.data_type.nullable else "decides where a row goes and must not be null"
        self._refuse(
            f"column {column.name!r} ({column.data_type}) {reason}, but the row has no value for it: write a value"
        )

    def _refuse_value(self, index: int, value: object, error: UnfitValueError) -> NoReturn:
        column = self.schema.columns[index]
        got = f"{shown(value)} ({type(value).__name__})"
        self._refuse(f"column {column.name!r} expects {column.data_type}, got {got}: {error}", error.error_code)


def value_bytes(value: object) -> int:
    """The approximate memory of a stored value of variable length."""
    if isinstance(value, (str, bytes)):
        return len(value)
    if isinstance(value, (list, tuple)):
        return 16 + sum(map(value_bytes, value))
    if isinstance(value, dict):
        return 16 + sum(map(value_bytes, value.values()))
    return 8


def make_append(rules: RowRules, sink: RowSink, stored: str | None = None) -> Callable[[Any], Any]:
    """The `append` function of one writer. Column variables are v0, v1, ...: users' names never become source.

    `stored` is the source of the tuple that goes into the flat list, all variables in their order if it is not given.
    """
    source = append_source(rules, stored)
    scope: dict[str, Any] = {
        "s": sink,
        "rules": rules,
        "date": datetime.date,
        "datetime": datetime.datetime,
        "encodable": is_encodable,
        "min_ns": MIN_NANOSECOND_DATETIME,
        "max_ns": MAX_NANOSECOND_DATETIME,
        "names": rules.names,
        "note_null": rules.note_null,
        "known_partition_values": known_partition_values,
        "is_partition_value": is_partition_value,
    }
    for index in range(len(rules.names)):
        scope[f"check{index}"] = rules.checked_column(index)
    function: Callable[[Any], Any] = define(source, scope, "append of a table")["append"]
    return function


def append_source(rules: RowRules, stored: str | None = None) -> str:
    """The source of the function. `len(row)` after the lookups finds unknown keys; `row_buffer.py` explains the `raced`
    line."""
    count = len(rules.names)
    variables = [f"v{index}" for index in range(count)]
    values = f"({', '.join(variables)},)"
    takes = "; ".join(f"v{index} = row[{rules.names[index]!r}]" for index in range(count))
    conditions, checks, large = _tests(rules, variables)
    lines = [
        "def append(row):",
        "    if type(row) is dict:",
        "        try:",
        f"            {takes}",
        f"            if len(row) != {count}: rules.values(row)",
        "        except KeyError:",
        f"            {values} = rules.values(row)",
        f"    elif (type(row) is tuple or type(row) is list) and len(row) == {count}:",
        f"        {values} = row",
        "    else:",
        f"        {values} = rules.values(row)",
    ]
    if large:  # a nested column: its size counts, so every row takes the complete check
        lines.append(f"    {values} = rules.check({values}, s)")
    else:
        if conditions:
            lines.append(f"    if not ({' and '.join(conditions)}):")
            lines.append(f"        {values} = rules.check({values}, s)")
            lines += ["    else:", *(f"        {check}" for check in checks)] if checks else []
        else:
            lines += [f"    {check}" for check in checks]
    lines += [
        "    f = s.flat",
        "    if len(f) >= s.limit: s.make_room()",
        "    h = s.handle or s.settled()",
        f"    f += {stored or values}",
        "    if s.handle is not h: h = s.raced(h)",
        "    if s.idle: s.kick()",
        "    return h",
    ]
    return "\n".join(lines) + "\n"


def _tests(rules: RowRules, variables: Sequence[str]) -> tuple[list[str], list[str], bool]:
    """Conditions of the fast path, calls for columns that always need their checker, and True if sizes count."""
    conditions: list[str] = []
    checks: list[str] = []
    large = False
    for index, (name, column) in enumerate(zip(variables, rules.schema.columns, strict=True)):
        root = column.data_type.root
        condition = rules.fits[index].condition(name)
        if condition is None:
            large = large or root in _VARIABLE_ROOTS
            checks.append(f"{name} = check{index}({name})")
            continue
        if rules.nullable[index]:
            note = f" and note_null({index})" if root in ("FLOAT", "DOUBLE") else ""
            condition = f"({condition} or {name} is None{note})"
        conditions.append(condition)
    return conditions, checks, large
