"""Encodes nested Arrow columns as array, map and row blocks, and scalar columns as slots, column by column.

A column of arrays is flattened: the slots of all elements are made as one column. The slots and the variable entries
of one array are adjacent, so its block is a few slices, concatenated by one join.
ALIGNED rows (Paimon keys) use the same slots.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from fluss.codec.arrow.types import to_arrow_type
from fluss.codec.rows.aligned import HEADER_BITS, aligned_header_bytes
from fluss.codec.rows.array_block import COUNT_BYTES, INLINE_MARK, MAX_INLINE_BYTES, SLOT_BYTES
from fluss.codec.rows.arrow_columns import (
    as_column,
    from_big_unscaled,
    from_content,
    from_fixed,
    from_timestamps,
    from_unscaled,
)
from fluss.codec.rows.column_buffers import (
    PaddedSource,
    binary_parts,
    fixed_size,
    join,
    null_mask,
    offsets_of,
    ragged,
    sizes_of,
    spread,
    zeros,
)
from fluss.codec.rows.values import (
    FIXED_STRUCTS,
    MAX_DECIMAL_BYTES,
    NESTED_ROOTS,
    TIMESTAMP_ROOTS,
    RowValueError,
    is_compact,
)
from fluss.codec.rows.varint import Bools, Bytes, Int64s, UInt64s
from fluss.model.types import ArrayType, DataType, MapType, RowType

if TYPE_CHECKING:
    from fluss.codec.rows.varint import Numbers

EncodeRows: TypeAlias = Callable[[Sequence[pa.Array], Sequence[DataType], int], pa.Array]


class Slots(NamedTuple):
    """The slots of a column, their variable entries (whose sizes are multiples of eight), and which are pointers."""

    fixed: Numbers  # numbers of the width of the type, or words of eight bytes without the offsets of the pointers
    entries: pa.Array | None = None  # binary array, empty where there is no entry
    pointers: Bools | None = None

    def pointing(self, offsets: Int64s) -> Numbers:
        """Return the slots with the offsets of their entries filled in."""
        if self.pointers is None:
            return self.fixed
        words: Numbers = self.fixed | np.where(self.pointers, offsets, 0).astype(np.uint64) << np.uint64(32)
        return words


def encode_nested(array: pa.Array, data_type: DataType, encode_rows: EncodeRows) -> pa.Array:
    """Encode an ARRAY, MAP or ROW column as a binary array of blocks, with the nulls of the column."""
    if pa.types.is_null(array.type):
        array = pa.nulls(len(array), to_arrow_type(data_type))
    nulls = null_mask(array)
    if nulls is not None:
        array = array.filter(pa.array(~nulls))
    if isinstance(data_type, RowType):
        if not pa.types.is_struct(array.type) or array.type.num_fields != len(data_type.fields):
            raise RowValueError(f"{data_type} cannot hold Arrow values of type {array.type}")
        children = [array.field(index) for index in range(array.type.num_fields)]
        blocks = encode_rows(children, [field.data_type for field in data_type.fields], len(array))
    elif isinstance(data_type, ArrayType):
        counts, values = list_parts(array, data_type)
        blocks = _arrays(counts, values[0], data_type.element, encode_rows)
    else:
        assert isinstance(data_type, MapType)
        counts, values = list_parts(array, data_type)
        keys = _arrays(counts, values[0], data_type.key.not_null(), encode_rows)
        items = _arrays(counts, values[1], data_type.value, encode_rows)
        blocks = join([fixed_size(sizes_of(keys).astype(np.int32)), keys, items], len(array))
    return spread(blocks, nulls)


def list_parts(array: pa.Array, data_type: DataType) -> tuple[Int64s, list[pa.Array]]:
    """The number of elements of each row of a list or map column without nulls, and its flattened children."""
    if isinstance(data_type, MapType):
        if not pa.types.is_map(array.type):
            raise RowValueError(f"{data_type} cannot hold Arrow values of type {array.type}")
        children = [array.keys, array.items]
    else:
        if pa.types.is_fixed_size_list(array.type) or pa.types.is_large_list(array.type):
            array = array.cast(pa.list_(array.type.value_field))
        if not pa.types.is_list(array.type):
            raise RowValueError(f"{data_type} cannot hold Arrow values of type {array.type}")
        children = [array.values]
    if not len(array):
        return np.empty(0, np.int64), [child.slice(0, 0) for child in children]
    offsets = np.frombuffer(array.buffers()[1], np.int32, len(array) + 1, array.offset * 4).astype(np.int64)
    first, count = int(offsets[0]), int(offsets[-1] - offsets[0])
    return np.diff(offsets), [child.slice(first, count) for child in children]


def _arrays(counts: Int64s, values: pa.Array, element: DataType, encode_rows: EncodeRows) -> pa.Array:
    """The array blocks of lists whose elements are in `values`; `counts` are the numbers of elements."""
    nulls = null_mask(values)
    if nulls is not None and not element.nullable:
        raise RowValueError(f"an element of an array of {element} is null, which the type does not allow")
    slots = encode_slots(values, element, nulls, encode_rows, canonical_nan=True)
    offsets = offsets_of(counts)
    width = slots.fixed.itemsize
    unpadded = COUNT_BYTES + 4 * ((counts + 31) // 32) + counts * width
    fixed_sizes = (unpadded + 7) & ~7
    entries = None
    if slots.entries is not None:
        data, entry_offsets = binary_parts(slots.entries)
        list_offsets = entry_offsets[offsets]
        block = np.repeat(np.arange(len(counts)), counts)
        fixed = slots.pointing((fixed_sizes - list_offsets[:-1])[block] + entry_offsets[:-1])
        entries = ragged(data, list_offsets)
    else:
        fixed = slots.fixed
    components = [
        fixed_size(counts.astype(np.int32)),
        _null_words(counts, offsets, nulls),
        ragged(np.ascontiguousarray(fixed), offsets * width),
        zeros(fixed_sizes - unpadded),
    ]
    return join(components if entries is None else [*components, entries], len(counts))


def _null_words(counts: Int64s, offsets: Int64s, nulls: Bools | None) -> pa.Array:
    """The null bits of every list, in words of four bytes."""
    word_offsets = offsets_of((counts + 31) // 32)
    bits = np.zeros(int(word_offsets[-1]) * 32, np.bool_)
    if nulls is not None:
        elements = np.flatnonzero(nulls)
        block = np.searchsorted(offsets, elements, side="right") - 1
        bits[word_offsets[:-1][block] * 32 + elements - offsets[:-1][block]] = True
    return ragged(np.packbits(bits, bitorder="little"), word_offsets * 4)


def encode_slots(
    array: pa.Array, data_type: DataType, nulls: Bools | None, encode_rows: EncodeRows, *, canonical_nan: bool
) -> Slots:
    """Encode a column as slots, which are zero where it is null."""
    root = data_type.root
    if root in NESTED_ROOTS:
        return _pointers(encode_nested(array, data_type, encode_rows), nulls)
    array = as_column(array, data_type)
    if root in FIXED_STRUCTS:
        values = from_fixed(array, data_type)
        if canonical_nan and root in ("FLOAT", "DOUBLE"):
            values = np.where(np.isnan(values), values.dtype.type(np.nan), values)
        return Slots(values)
    if root == "DECIMAL":
        if is_compact(data_type):
            return Slots(from_unscaled(array, data_type).view(np.uint64))
        return _pointers(from_big_unscaled(array, data_type), nulls, MAX_DECIMAL_BYTES)
    if root in TIMESTAMP_ROOTS:
        millis, nanos = from_timestamps(array)
        if is_compact(data_type):
            return Slots(millis.view(np.uint64))
        pointers = np.ones(len(array), np.bool_) if nulls is None else ~nulls
        return Slots(nanos.view(np.uint64), join([fixed_size(millis, nulls)], len(array)), pointers)
    return _text_slots(from_content(array, data_type), nulls)


def _pointers(content: pa.Array, nulls: Bools | None, reserved_bytes: int | None = None) -> Slots:
    """Pointer slots for every row that is not null; entries are padded to eight bytes or to `reserved_bytes`."""
    sizes = sizes_of(content)
    room = (sizes + 7) & ~7 if reserved_bytes is None else np.full(len(sizes), reserved_bytes)
    pointers = np.ones(len(sizes), np.bool_) if nulls is None else ~nulls
    padding = zeros(np.where(pointers, room - sizes, 0))
    return Slots(sizes.astype(np.uint64), join([content, padding], len(sizes)), pointers)


def _text_slots(content: pa.Array, nulls: Bools | None) -> Slots:
    sizes = sizes_of(content)
    pointers = sizes > MAX_INLINE_BYTES
    data, offsets = binary_parts(content)
    source = PaddedSource(memoryview(data)[int(offsets[0]) : int(offsets[-1])])
    shown: UInt64s = np.minimum(sizes, MAX_INLINE_BYTES).astype(np.uint64)
    words = source.words[offsets[:-1] - offsets[0]] & ((np.uint64(1) << (shown * np.uint64(8))) - np.uint64(1))
    words |= (shown | np.uint64(INLINE_MARK)) << np.uint64(56)
    words = np.where(pointers, sizes.astype(np.uint64), words)
    if nulls is not None:
        words[nulls] = 0
    long = ragged(source.data, offsets - offsets[0], ~pointers)
    padding = zeros(np.where(pointers, (sizes + 7) // 8 * 8 - sizes, 0))
    return Slots(words, join([long, padding], len(sizes)), pointers)


def encode_aligned_columns(columns: Sequence[pa.Array], types: Sequence[DataType], count: int) -> pa.Array:
    """Encode scalar columns as a binary array of ALIGNED rows; nested types are refused."""
    header = aligned_header_bytes(len(types))
    fixed: Bytes = np.zeros((count, header + SLOT_BYTES * len(types)), np.uint8)
    next_offset = np.full(count, fixed.shape[1], np.int64)
    entries: list[pa.Array] = []
    for index, (column, data_type) in enumerate(zip(columns, types, strict=True)):
        if data_type.root in NESTED_ROOTS:
            raise RowValueError(f"an ALIGNED row cannot hold a column of type {data_type}")
        nulls = null_mask(column)
        if nulls is not None:
            bit = index + HEADER_BITS
            fixed[:, bit >> 3] |= nulls.astype(np.uint8) << np.uint8(bit & 7)
        slots = encode_slots(column, data_type, nulls, encode_aligned_columns, canonical_nan=False)
        words = np.ascontiguousarray(slots.pointing(next_offset))
        position = header + SLOT_BYTES * index
        fixed[:, position : position + words.itemsize] = words.view(np.uint8).reshape(count, words.itemsize)
        if slots.entries is not None:
            next_offset += sizes_of(slots.entries)
            entries.append(slots.entries)
    return join([fixed_size(fixed), *entries], count)
