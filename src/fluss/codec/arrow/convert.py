"""Converts Arrow columns from one type to another; nested columns are converted leaf by leaf.

Columns of equal types are returned as they are, and nested ones with equal leaves get a new type without a copy. The
caller decides how a leaf may be converted: it passes a function that takes the values, the wanted type and a
description of where they are.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fluss.errors import FlussError

Leaf = Callable[[pa.Array, pa.DataType, str], pa.Array]


def converted(array: pa.Array, target: pa.DataType, where: str, leaf: Leaf) -> pa.Array:
    """The values of `array` converted to the type `target`; `where` names the column in error messages."""
    if array.type.equals(target):
        return array
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), target)
    if pa.types.is_list(target) and pa.types.is_list(array.type):
        return _list(array, target, where, leaf)
    if pa.types.is_map(target) and pa.types.is_map(array.type):
        return _map(array, target, where, leaf)
    if pa.types.is_struct(target) and pa.types.is_struct(array.type):
        return _struct(array, target, where, leaf)
    return leaf(array, target, where)


def _list(array: pa.Array, target: pa.DataType, where: str, leaf: Leaf) -> pa.Array:
    """Convert a list column. If every child value is visible, the child is converted whole and the offsets are kept."""
    array = _seen(array)
    inner = f"{where}, element"
    check_nulls(array.values, target.value_field, inner)
    values = converted(array.values, target.value_type, inner, leaf)
    return _with_children(array, target, [values])


def _map(array: pa.Array, target: pa.DataType, where: str, leaf: Leaf) -> pa.Array:
    array = _seen(array)
    check_nulls(array.items, target.item_field, f"{where}, value")
    keys = converted(array.keys, target.key_type, f"{where}, key", leaf)
    values = converted(array.items, target.item_type, f"{where}, value", leaf)
    entries = pa.StructArray.from_arrays([keys, values], fields=[target.key_field, target.item_field])
    return _with_children(array, target, [entries])


def _seen(array: pa.Array) -> pa.Array:
    """The lists or maps without hidden child values (outside of the slice, or under nulls), which may be invalid."""
    children = [array.keys, array.items] if pa.types.is_map(array.type) else [array.values]
    offsets = np.asarray(array.offsets)
    first, last = (offsets[0], offsets[-1]) if len(offsets) else (0, 0)
    if last - first == len(children[0]) and not array.null_count:
        return array
    lengths = np.diff(offsets)
    if array.null_count and lengths[np.asarray(array.is_null())].any():
        return array.take(pa.array(np.arange(len(array))))
    children = [child.slice(first, last - first) for child in children]
    if len(children) == 2:
        fields = [array.type.key_field, array.type.item_field]
        children = [pa.StructArray.from_arrays(children, fields=fields)]
    validity = array.is_valid().buffers()[1] if array.null_count else None
    buffers = [validity, pa.py_buffer((offsets - first).astype(np.int32))]
    return pa.Array.from_buffers(array.type, len(array), buffers, children=children)


def _with_children(array: pa.Array, target: pa.DataType, children: list[pa.Array]) -> pa.Array:
    validity, offsets = array.buffers()[:2]
    return pa.Array.from_buffers(target, len(array), [validity, offsets], offset=array.offset, children=children)


def _struct(array: pa.Array, target: pa.DataType, where: str, leaf: Leaf) -> pa.Array:
    fields = [target.field(index) for index in range(target.num_fields)]
    given = [array.type.field(index).name for index in range(array.type.num_fields)]
    if given != [field.name for field in fields]:
        wanted = ", ".join(field.name for field in fields)
        raise FlussError(f"{where} must have the fields {wanted}, in this order, got {', '.join(given)}")
    valid = None if array.null_count == 0 else array.is_valid()
    children = []
    seen = array.flatten()  # values under null structs become null
    for index, field in enumerate(fields):
        child, inner = seen[index], f"{where}, field {field.name!r}"
        check_nulls(child if valid is None else child.filter(valid), field, inner)
        children.append(converted(child, field.type, inner, leaf))
    return pa.StructArray.from_arrays(children, fields=fields, mask=None if valid is None else pc.invert(valid))


def check_nulls(array: pa.Array, field: pa.Field, where: str) -> None:
    """Raise if a NOT NULL field has nulls."""
    if not field.nullable and array.null_count:
        raise FlussError(f"{where} is NOT NULL, but {array.null_count} of {len(array)} values are null")


def relabelled(array: pa.Array, zone: str | None) -> pa.Array:
    """The same points in time with another time zone. Nothing is converted: Arrow stores UTC for every zone."""
    return array if zone is None else array.view(pa.timestamp(array.type.unit, zone))


def cut(array: pa.Array, unit: str) -> pa.Array:
    """Convert times to another unit, rounding towards the past where it has fewer digits."""
    source = array.type
    target = _with_unit(source, unit)
    digits = {"s": 0, "ms": 3, "us": 6, "ns": 9}
    lost = digits[source.unit] - digits[unit]
    if lost <= 0:
        return array.cast(target)
    numbers = array.cast(pa.int64()) if source.bit_width == 64 else array.cast(pa.int32()).cast(pa.int64())
    divisor = 10**lost
    # Arrow's integer division rounds towards zero; a time before 1970 must be rounded down.
    quotient = pc.divide(numbers, divisor)
    if pc.min(numbers).as_py() is not None and pc.min(numbers).as_py() < 0:
        towards_zero = pc.greater(pc.multiply(quotient, divisor), numbers)
        quotient = pc.subtract(quotient, towards_zero.cast(pa.int64()))
    return (quotient if target.bit_width == 64 else quotient.cast(pa.int32())).cast(target)


def _with_unit(data_type: pa.DataType, unit: str) -> pa.DataType:
    if pa.types.is_timestamp(data_type):
        return pa.timestamp(unit, data_type.tz)
    return pa.time32(unit) if unit in ("s", "ms") else pa.time64(unit)
