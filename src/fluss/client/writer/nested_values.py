"""Checkers for ARRAY, MAP and ROW values: deep copies whose leaves all fit.

ARRAY takes lists, tuples and NumPy arrays; MAP takes dicts and lists of pairs; ROW takes dicts by field name and lists
or tuples by position. The result is what Arrow turns into a column: lists, lists of pairs, dicts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fluss.client.writer.value_checks import Checker, UnfitValueError, check_value
from fluss.model.types import ArrayType, DataType, MapType, RowType


def nested_checker(data_type: DataType) -> Checker:
    """The checker of an ARRAY, MAP or ROW type."""
    if isinstance(data_type, ArrayType):
        return _array_checker(data_type)
    if isinstance(data_type, MapType):
        return _map_checker(data_type)
    if isinstance(data_type, RowType):
        return _row_checker(data_type)
    raise ValueError(f"no values can be checked for {data_type}")


def _inner(data_type: DataType, where: str) -> Checker:
    """A checker that also takes None if the type does, and says where inside the value the trouble is."""
    check = check_value(data_type)

    def checked(value: Any) -> Any:
        if value is None:
            if data_type.nullable:
                return None
            raise UnfitValueError(f"{where} must not be null")
        try:
            return check(value)
        except UnfitValueError as error:
            raise UnfitValueError(f"{where} ({data_type}) does not fit {value!r}: {error}") from None

    return checked


def _array_checker(data_type: ArrayType) -> Checker:
    element = _inner(data_type.element, "an element")

    def check(value: Any) -> list[Any]:
        if not isinstance(value, (list, tuple, np.ndarray)):
            raise UnfitValueError("it is not a list")
        return [element(item) for item in value]

    return check


def _map_checker(data_type: MapType) -> Checker:
    key_of = _inner(data_type.key.not_null(), "a key")
    value_of = _inner(data_type.value, "a value")

    def check(value: Any) -> list[tuple[Any, Any]]:
        pairs = value.items() if isinstance(value, Mapping) else value
        if not isinstance(value, (Mapping, list, tuple)):
            raise UnfitValueError("it is neither a dict nor a list of pairs")
        out = []
        for pair in pairs:
            if not isinstance(pair, (tuple, list)) or len(pair) != 2:
                raise UnfitValueError("it is neither a dict nor a list of pairs")
            out.append((key_of(pair[0]), value_of(pair[1])))
        return out

    return check


def _row_checker(data_type: RowType) -> Checker:
    names = [field.name for field in data_type.fields]
    checks = [_inner(field.data_type, f"field {field.name!r}") for field in data_type.fields]

    def check(value: Any) -> dict[str, Any]:
        if isinstance(value, Mapping):
            unknown = [key for key in value if key not in names]
            if unknown:
                raise UnfitValueError(f"it has no field {unknown[0]!r}; the fields are {', '.join(names)}")
            values = [value.get(name) for name in names]
        elif isinstance(value, (list, tuple)):
            if len(value) != len(names):
                raise UnfitValueError(f"it has {len(value)} values for {len(names)} fields")
            values = list(value)
        else:
            raise UnfitValueError("it is neither a dict nor a list")
        return {name: check_field(item) for name, check_field, item in zip(names, checks, values, strict=True)}

    return check
