"""ARRAY, MAP and ROW: nested values, which fit if all of their leaves fit.

ARRAY takes lists, tuples and NumPy arrays, and Arrow's kinds of lists; MAP takes dicts and lists of pairs, and Arrow's
maps and lists of `key` and `value`; ROW takes dicts and structs by field name, lists and tuples by position. A missing
field is null, an unknown one is refused.

Only visible values of Arrow arrays count: those under nulls or outside of a slice are dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fluss.client.fitting.base import CONVERT, Fit, FitRules, UnfitTypeError, UnfitValueError, plain, shown
from fluss.model.types import ArrayType, DataType, MapType, RowType

Visit = Callable[[DataType, FitRules], Fit]


class Inner:
    """The values of a type inside another one, null if it allows that; errors name its place."""

    def __init__(self, fit: Fit, where: str) -> None:
        self.fit = fit
        self.where = where
        self.nullable = fit.data_type.nullable
        self.looks_closer = fit.looks_closer or not self.nullable

    def value(self, value: object) -> object:
        if value is None:
            if self.nullable:
                return None
            raise UnfitValueError(f"{self.where} must not be null: write a value")
        try:
            return self.fit.value(value)
        except UnfitValueError as error:
            raise UnfitValueError(f"{self.where} ({self.fit.data_type}) does not fit {shown(value)}: {error}") from None

    def array(self, array: pa.Array, nulls_above: int = 0) -> pa.Array:
        """Convert an array; `nulls_above` of its nulls are there because their parent is null."""
        try:
            found = self.fit.array(array)
        except UnfitValueError as error:
            raise type(error)(f"{self.where} ({self.fit.data_type}): {error}") from None
        if not self.nullable and found.null_count > nulls_above:
            raise UnfitValueError(f"{self.where} must not be null: write a value")
        return found


class ArrayFit(Fit):
    """Lists."""

    def __init__(self, data_type: ArrayType, rules: FitRules, visit: Visit) -> None:
        super().__init__(data_type, rules)
        self._element = Inner(visit(data_type.element, rules), "an element")
        self.looks_closer = self._element.looks_closer

    def value(self, value: object) -> list[object]:
        if not isinstance(value, (list, tuple, np.ndarray)) or (isinstance(value, np.ndarray) and not value.ndim):
            raise UnfitValueError(f"it is not a list: {CONVERT}")
        return [self._element.value(item) for item in value]

    def _converted(self, array: pa.Array) -> pa.Array:
        if not _is_list(array.type):
            return self._refuse_type(array.type)
        return _listed(array, self.arrow_type, self._element.array(array.flatten()))


class MapFit(Fit):
    """Pairs whose keys are not null."""

    def __init__(self, data_type: MapType, rules: FitRules, visit: Visit) -> None:
        super().__init__(data_type, rules)
        self._key = Inner(visit(data_type.key.not_null(), rules), "a key")
        self._value = Inner(visit(data_type.value, rules), "a value")
        # Arrow itself does not allow null keys.
        self.looks_closer = self._key.fit.looks_closer or self._value.looks_closer

    def value(self, value: Any) -> list[tuple[object, object]]:
        pairs = value.items() if isinstance(value, Mapping) else value
        if not isinstance(value, (Mapping, list, tuple)):
            raise UnfitValueError(f"it is neither a dict nor a list of pairs: {CONVERT}")
        out = []
        for pair in pairs:
            if not isinstance(pair, (tuple, list)) or len(pair) != 2:
                raise UnfitValueError(f"it is neither a dict nor a list of pairs: {CONVERT}")
            out.append((self._key.value(pair[0]), self._value.value(pair[1])))
        return out

    def _converted(self, array: pa.Array) -> pa.Array:
        if pa.types.is_map(array.type):
            array = _as_list(array)
        elif not _is_list(array.type) or not _is_pair(array.type.value_type):
            return self._refuse_type(array.type)
        entries = plain(array.flatten())
        if entries.null_count:
            raise UnfitValueError("a pair must not be null: remove it first")
        keys, values = entries.flatten()
        fields = [self.arrow_type.key_field, self.arrow_type.item_field]
        pairs = pa.StructArray.from_arrays([self._key.array(keys), self._value.array(values)], fields=fields)
        return _listed(array, self.arrow_type, pairs)


class RowFit(Fit):
    """Structs by the names of their fields."""

    def __init__(self, data_type: RowType, rules: FitRules, visit: Visit) -> None:
        super().__init__(data_type, rules)
        self._names = [field.name for field in data_type.fields]
        self._inner = [Inner(visit(field.data_type, rules), f"field {field.name!r}") for field in data_type.fields]
        self.looks_closer = any(each.looks_closer for each in self._inner)

    def value(self, value: object) -> dict[str, object]:
        if isinstance(value, Mapping):
            unknown = [key for key in value if key not in self._names]
            if unknown:
                raise UnfitValueError(self._has_no_field(unknown[0]))
            values = [value.get(name) for name in self._names]
        elif isinstance(value, (list, tuple)):
            if len(value) != len(self._names):
                raise UnfitValueError(f"it has {len(value)} values, but the type has {len(self._names)} fields")
            values = list(value)
        else:
            raise UnfitValueError(f"it is neither a dict nor a list: {CONVERT}")
        return {name: inner.value(item) for name, inner, item in zip(self._names, self._inner, values, strict=True)}

    def _has_no_field(self, name: object) -> str:
        return f"it has no field {shown(name)}; the fields are {', '.join(self._names)}"

    def _converted(self, array: pa.Array) -> pa.Array:
        if not pa.types.is_struct(array.type):
            return self._refuse_type(array.type)
        given = [array.type.field(index).name for index in range(array.type.num_fields)]
        for index, name in enumerate(given):
            if name not in self._names:
                raise UnfitTypeError(self._has_no_field(name))
            if name in given[:index]:
                raise UnfitTypeError(f"field {name!r} is duplicated")
        parts = dict(zip(given, array.flatten(), strict=True))
        children = [
            inner.array(parts[name] if name in parts else pa.nulls(len(array)), array.null_count)
            for name, inner in zip(self._names, self._inner, strict=True)
        ]
        fields = [self.arrow_type.field(index) for index in range(self.arrow_type.num_fields)]
        return pa.StructArray.from_arrays(children, fields=fields, mask=array.is_null() if array.null_count else None)


def _is_list(arrow_type: pa.DataType) -> bool:
    kinds = pa.types
    return bool(
        kinds.is_list(arrow_type)
        or kinds.is_large_list(arrow_type)
        or kinds.is_fixed_size_list(arrow_type)
        or kinds.is_list_view(arrow_type)
        or kinds.is_large_list_view(arrow_type)
    )


def _is_pair(arrow_type: pa.DataType) -> bool:
    """True for the struct that libraries without a map type, such as polars, use for pairs."""
    names = ["key", "value"]
    return pa.types.is_struct(arrow_type) and [field.name for field in arrow_type] == names


def _as_list(array: pa.Array) -> pa.Array:
    """A map as a list of pairs."""
    entries = pa.StructArray.from_arrays([array.keys, array.items], ["key", "value"])
    buffers = array.buffers()[:2]
    return pa.Array.from_buffers(pa.list_(entries.type), len(array), buffers, offset=array.offset, children=[entries])


def _listed(array: pa.Array, target: pa.DataType, values: pa.Array) -> pa.Array:
    """Lists with the lengths of those in `array` and these flattened values."""
    lengths = np.asarray(pc.list_value_length(array).fill_null(0), np.int64)
    offsets = np.zeros(len(array) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    if offsets[-1] >= 2**31:
        raise UnfitValueError("these lists have more than 2147483647 elements in total: write fewer rows at a time")
    validity = array.is_valid().buffers()[1] if array.null_count else None
    buffers = [validity, pa.py_buffer(offsets.astype(np.int32))]
    return pa.Array.from_buffers(target, len(array), buffers, children=[values])
