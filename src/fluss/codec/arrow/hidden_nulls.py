"""Removes hidden nulls: nulls in a NOT NULL field of a row that is itself null.

Rows that were decoded from key-value batches contain such nulls, and Parquet refuses them. Only the validity bits are
dropped; the values are not copied.
"""

from __future__ import annotations

import pyarrow as pa


def without_hidden_nulls(array: pa.Array) -> pa.Array:
    """The same values, without nulls in NOT NULL fields. The caller has checked that no visible value is null.

    >>> rows = pa.StructArray.from_arrays([pa.array([1, None])], ["a"], mask=pa.array([False, True]))
    >>> strict = pa.StructArray.from_arrays(
    ...     [rows.field(0)], fields=[pa.field("a", pa.int64(), False)], mask=pa.array([False, True])
    ... )
    >>> without_hidden_nulls(strict).field(0).null_count
    0
    """
    kind = array.type
    if pa.types.is_struct(kind):
        return _struct(array)
    if pa.types.is_list(kind):
        values = _fit(array.values, kind.value_field)
        return array if values is array.values else _list_of(array, values)
    if pa.types.is_map(kind):
        items = _fit(array.items, kind.item_field)
        keys = _fit(array.keys, kind.key_field)
        return _list_of(array, pa.StructArray.from_arrays([keys, items], fields=[kind.key_field, kind.item_field]))
    return array


def _fit(array: pa.Array, field: pa.Field) -> pa.Array:
    fitting = without_hidden_nulls(array)
    return fitting if field.nullable or not fitting.null_count else _without_validity(fitting)


def _struct(array: pa.Array) -> pa.Array:
    fields = [array.type.field(index) for index in range(array.type.num_fields)]
    children = [_fit(array.field(index), field) for index, field in enumerate(fields)]
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(children, fields=fields, mask=mask)


def _list_of(array: pa.Array, values: pa.Array) -> pa.Array:
    validity, offsets = array.buffers()[:2]
    return pa.Array.from_buffers(array.type, len(array), [validity, offsets], offset=array.offset, children=[values])


def _without_validity(array: pa.Array) -> pa.Array:
    """Drop the validity bits. The value under a null is an ordinary one: zero, an empty string, or no elements."""
    kind = array.type
    if pa.types.is_struct(kind):
        fields = [kind.field(index) for index in range(kind.num_fields)]
        return pa.StructArray.from_arrays([array.field(index) for index in range(len(fields))], fields=fields)
    buffers = array.buffers()
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        values = array.values
        if pa.types.is_map(kind):
            values = pa.StructArray.from_arrays([array.keys, array.items], fields=[kind.key_field, kind.item_field])
        return pa.Array.from_buffers(
            kind, len(array), [None, buffers[1]], null_count=0, offset=array.offset, children=[values]
        )
    own = 3 if pa.types.is_string(kind) or pa.types.is_binary(kind) else 2
    return pa.Array.from_buffers(kind, len(array), [None, *buffers[1:own]], null_count=0, offset=array.offset)
