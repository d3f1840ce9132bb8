"""Columns that decide where a row goes: values that fit the type, but for which there is no partition or bucket.

Which rules a column has depends on the table (`fluss.client.write.routing.place_rules`). A `PlacedFit` adds one to the
fit of the column, so that such a value is refused like any other, at the call and by the name of its column.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from fluss.client.fitting.base import Fit, UnfitValueError, any_true
from fluss.codec.keys.encoding import HUDI_RESERVED, HUDI_SEPARATOR, KeyEncoding, encode_keys
from fluss.codec.keys.partition_names import MAX_VALUE_CHARACTERS, check_partition_value, partition_names
from fluss.codec.rows.values import BYTES_ROOTS, TEXT_ROOTS, RowValueError
from fluss.errors import ErrorCode
from fluss.model.types import DataType

# Strings that were found to be partition values, so that the usual row needs no regular expression.
MAX_KNOWN_PARTITION_VALUES = 10_000
known_partition_values: set[str] = set()

_IS_PARTITION_VALUE = re.compile(rf"[A-Za-z0-9_-]{{1,{MAX_VALUE_CHARACTERS}}}").fullmatch
_MAX_PARTITION_BYTES = MAX_VALUE_CHARACTERS // 2  # each is two characters of the name
_NO_PARTITION = "such a partition cannot exist: "
_OUTSIDE_CALENDAR = _NO_PARTITION + "it is outside the years 1 to 9999: correct it first"
_NO_TEXT = (
    f"{_NO_PARTITION}its value must have 1 to {MAX_VALUE_CHARACTERS} characters, only letters, digits, '_' and '-': "
    "replace others first"
)
_NO_CONTENT = f"{_NO_PARTITION}its value must have 1 to {_MAX_PARTITION_BYTES} bytes: change its length first"
_HUDI_WORDS = tuple(sorted(HUDI_RESERVED))
_NO_HUDI_KEY = (
    f"in a Hudi bucket key of several columns a value must not contain {HUDI_SEPARATOR!r}, nor be "
    f"{' or '.join(map(repr, _HUDI_WORDS))}: replace it first"
)


class NoPartitionError(UnfitValueError):
    """No partition can have such a value."""

    error_code = ErrorCode.PARTITION_SPEC_INVALID_EXCEPTION


class PlaceRule:
    """A rule for values that fit the type of their column. By default, Python values need no check."""

    def check(self, value: Any) -> None:
        """Raise `UnfitValueError` for a value as the fit returned it, if it has no place."""

    def condition(self, name: str) -> str | None:
        """Source of an expression that is true if variable `name` passes; None if every Python value does.

        May use `known_partition_values` and `is_partition_value`.
        """
        return None

    def check_array(self, array: Any) -> None:
        """Raise `UnfitValueError` if a value of an array of the column's Arrow type has no place; nulls pass."""


class PlacedFit(Fit):
    """A fit with one more rule."""

    looks_closer = True

    def __init__(self, fit: Fit, rule: PlaceRule) -> None:
        super().__init__(fit.data_type, fit.rules)
        self._fit = fit
        self._rule = rule

    def value(self, value: Any) -> Any:
        stored = self._fit.value(value)
        self._rule.check(stored)
        return stored

    def condition(self, name: str) -> str | None:
        fits, has_place = self._fit.condition(name), self._rule.condition(name)
        return fits if fits is None or has_place is None else f"{fits} and {has_place}"

    def array(self, array: Any) -> Any:
        made = self._fit.array(array)
        self._rule.check_array(made)
        return made

    def _converted(self, array: Any) -> Any:
        return self.array(array)


class PartitionTextRule(PlaceRule):
    """Strings as partition values."""

    def check(self, value: Any) -> None:
        if not is_partition_value(value):
            raise NoPartitionError(_NO_TEXT)

    def condition(self, name: str) -> str:
        return f"({name} in known_partition_values or is_partition_value({name}))"

    def check_array(self, array: Any) -> None:
        if not all(map(_IS_PARTITION_VALUE, pc.unique(array).drop_null().to_pylist())):
            raise NoPartitionError(_NO_TEXT)


class PartitionBytesRule(PlaceRule):
    """Bytes as partition values."""

    def check(self, value: Any) -> None:
        if not 1 <= len(value) <= _MAX_PARTITION_BYTES:
            raise NoPartitionError(_NO_CONTENT)

    def condition(self, name: str) -> str:
        return f"1 <= len({name}) <= {_MAX_PARTITION_BYTES}"

    def check_array(self, array: Any) -> None:
        sizes = pc.binary_length(array)
        if any_true(pc.less(sizes, 1)) or any_true(pc.greater(sizes, _MAX_PARTITION_BYTES)):
            raise NoPartitionError(_NO_CONTENT)


class PartitionTimeRule(PlaceRule):
    """Days and moments as partition values: those of Arrow can be outside the calendar, Python's cannot."""

    def __init__(self, data_type: DataType) -> None:
        self._data_type = data_type

    def check_array(self, array: Any) -> None:
        try:
            for name in partition_names([_bounds(array)], [self._data_type]).to_pylist():
                check_partition_value(name, creating=False)
        except ValueError:
            raise NoPartitionError(_OUTSIDE_CALENDAR) from None


class NotEmptyRule(PlaceRule):
    """Strings and bytes that are stored as the key itself."""

    def __init__(self, reason: str) -> None:
        self._reason = f"{reason}: write a value that is not empty"

    def check(self, value: Any) -> None:
        if not value:
            raise UnfitValueError(self._reason)

    def condition(self, name: str) -> str:
        return name

    def check_array(self, array: Any) -> None:
        if any_true(pc.equal(pc.binary_length(array), 0)):
            raise UnfitValueError(self._reason)


class KeyTimeRule(PlaceRule):
    """Moments in keys: Arrow has moments that a key encoding cannot represent."""

    def __init__(self, data_type: DataType, encoding: KeyEncoding) -> None:
        self._data_type = data_type
        self._encoding = encoding

    def check_array(self, array: Any) -> None:
        bounds = _bounds(array)
        try:
            encode_keys([bounds], [self._data_type], self._encoding, len(bounds))
        except RowValueError as error:
            text = str(error).removeprefix(f"{self._data_type} ")
            raise UnfitValueError(f"it cannot be a key ({text}): correct it first") from None


class HudiTextRule(PlaceRule):
    """Strings in a Hudi bucket key of several columns."""

    def check(self, value: Any) -> None:
        if HUDI_SEPARATOR in value or value in HUDI_RESERVED:
            raise UnfitValueError(_NO_HUDI_KEY)

    def condition(self, name: str) -> str:
        return f"{HUDI_SEPARATOR!r} not in {name} and {name} not in {_HUDI_WORDS!r}"

    def check_array(self, array: Any) -> None:
        words = pa.array(_HUDI_WORDS, array.type)
        if any_true(pc.match_substring(array, HUDI_SEPARATOR)) or any_true(pc.is_in(array, words)):
            raise UnfitValueError(_NO_HUDI_KEY)


def is_partition_value(text: str) -> bool:
    """True if a string can be a value in the name of a partition."""
    if _IS_PARTITION_VALUE(text) is None:
        return False
    if len(known_partition_values) < MAX_KNOWN_PARTITION_VALUES:
        known_partition_values.add(text)
    return True


def partition_rule(data_type: DataType) -> PlaceRule | None:
    """The rule of a partition column; None if every value of the type has a partition."""
    if data_type.root in TEXT_ROOTS:
        return PartitionTextRule()
    if data_type.root in BYTES_ROOTS:
        return PartitionBytesRule()
    return PartitionTimeRule(data_type) if data_type.root == "DATE" or _is_moment(data_type) else None


def key_rule(data_type: DataType, encoding: KeyEncoding, column_count: int, empty: str) -> PlaceRule | None:
    """The rule of one of the columns of a key; None if every value can be in it. `empty` explains an empty key."""
    is_text = data_type.root in TEXT_ROOTS
    if encoding is KeyEncoding.ICEBERG and (is_text or data_type.root in BYTES_ROOTS):
        return NotEmptyRule(empty)
    if encoding is KeyEncoding.HUDI and is_text and column_count > 1:
        return HudiTextRule()
    return KeyTimeRule(data_type, encoding) if _is_moment(data_type) else None


def placed(fit: Fit, rules: Iterable[PlaceRule]) -> Fit:
    """The fit with all these rules."""
    for rule in rules:
        fit = PlacedFit(fit, rule)
    return fit


PlaceRules = Mapping[str, Sequence[PlaceRule]]
"""The rules of the columns that have some."""


def _is_moment(data_type: DataType) -> bool:
    return data_type.root in ("TIMESTAMP_WITHOUT_TIME_ZONE", "TIMESTAMP_WITH_LOCAL_TIME_ZONE")


def _bounds(array: Any) -> Any:
    """The least and the greatest value: whatever is refused is beyond a limit."""
    bounds = pc.min_max(array)
    return pa.array([bounds["min"], bounds["max"]], array.type).drop_null()
