"""Decodes array, map and row blocks to nested Arrow columns, column by column.

A column of arrays is flattened: the counts of all blocks give the offsets, and the elements of all blocks form one
child column. `decode_rows` is the row function of the enclosing format and is used for ROW elements.

The entries that the slots of a block point to may have at most as many bytes in total as the block (see
`array_block.SlotReader`), so a hostile block cannot cause more work than it has bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from fluss.codec.rows.array_block import COUNT_BYTES, INLINE_MARK, MAX_INLINE_BYTES, slot_width
from fluss.codec.rows.arrow_columns import (
    NUMPY_OF_ROOT,
    list_array,
    map_array,
    struct_array,
    to_big_unscaled,
    to_content,
    to_fixed,
    to_timestamps,
    to_unscaled,
)
from fluss.codec.rows.column_buffers import PaddedSource, advance, any_null, first_row, offsets_of, spread
from fluss.codec.rows.values import BYTES_ROOTS, FIXED_STRUCTS, TEXT_ROOTS, TIMESTAMP_ROOTS, CorruptRowError, is_compact
from fluss.codec.rows.varint import Bools, Int64s
from fluss.model.types import ArrayType, DataType, MapType, RowType

if TYPE_CHECKING:
    import pyarrow as pa

DecodeRows: TypeAlias = "Callable[[PaddedSource, Int64s, Int64s, Sequence[DataType]], list[pa.Array]]"


def decode_nested(
    source: PaddedSource,
    starts: Int64s,
    ends: Int64s,
    data_type: DataType,
    nulls: Bools | None,
    decode_rows: DecodeRows,
) -> pa.Array:
    """Decode the blocks between `starts` and `ends`, which must be inside the source, to a nested Arrow column."""
    if nulls is not None:
        starts, ends = starts[~nulls], ends[~nulls]
    if isinstance(data_type, ArrayType):
        offsets, values = _elements(source, starts, ends, data_type.element, decode_rows)
        column = list_array(data_type, offsets, values)
    elif isinstance(data_type, MapType):
        column = _maps(source, starts, ends, data_type, decode_rows)
    else:
        assert isinstance(data_type, RowType)
        children = decode_rows(source, starts, ends, [field.data_type for field in data_type.fields])
        column = struct_array(data_type, len(starts), children)
    return spread(column, nulls)


def _maps(source: PaddedSource, starts: Int64s, ends: Int64s, data_type: MapType, decode_rows: DecodeRows) -> pa.Array:
    key_starts = advance(starts, COUNT_BYTES, ends, "the size of the keys")
    key_bytes = _int32_at(source, starts)
    if (key_bytes < 0).any():
        raise CorruptRowError(f"the map in row {first_row(key_bytes < 0)} has keys of negative size")
    key_ends = advance(key_starts, key_bytes, ends, "the keys")
    offsets, keys = _elements(source, key_starts, key_ends, data_type.key.not_null(), decode_rows)
    value_offsets, values = _elements(source, key_ends, ends, data_type.value, decode_rows)
    if not np.array_equal(offsets, value_offsets):
        raise CorruptRowError("a map block must have as many keys as values, but has different numbers of them")
    return map_array(data_type, offsets, keys, values)


def _int32_at(source: PaddedSource, positions: Int64s) -> Int64s:
    numbers: Int64s = source.words[positions].astype(np.uint32).view(np.int32).astype(np.int64)
    return numbers


def _elements(
    source: PaddedSource, starts: Int64s, ends: Int64s, element: DataType, decode_rows: DecodeRows
) -> tuple[Int64s, pa.Array]:
    """The offsets of the lists, and their elements as one column."""
    advance(starts, COUNT_BYTES, ends, "the element count")
    counts, width = _int32_at(source, starts), slot_width(element)
    headers = COUNT_BYTES + 4 * ((counts + 31) // 32)
    wrong = (counts < 0) | (starts + headers + counts * width > ends)
    if wrong.any():
        row = first_row(wrong)
        size = int((ends - starts)[row])
        raise CorruptRowError(f"an array block of {size} bytes cannot hold {int(counts[row])} elements")
    offsets = offsets_of(counts)
    block = np.repeat(np.arange(len(counts)), counts)  # the block of each element
    index = np.arange(int(offsets[-1])) - offsets[:-1][block]  # its index within the block
    bits = source.data.take(starts[block] + COUNT_BYTES + (index >> 3)) >> (index & 7).astype(np.uint8)
    nulls = any_null((bits & 1) != 0)
    if nulls is not None and not element.nullable:
        raise CorruptRowError(f"an element of an array of {element} is null, which the type does not allow")
    slots = (starts + headers)[block] + index * width
    reader = _BlockSlots(source, starts, ends, offsets, block, decode_rows)
    return offsets, reader.column(slots, element, nulls)


class _BlockSlots:
    """Reads the slots of the elements of many blocks. Immutable: the source, and the positions of the blocks in it."""

    def __init__(
        self,
        source: PaddedSource,
        starts: Int64s,
        ends: Int64s,
        offsets: Int64s,
        block: Int64s,
        decode_rows: DecodeRows,
    ) -> None:
        self._source, self._starts, self._ends = source, starts, ends
        self._offsets, self._block, self._decode_rows = offsets, block, decode_rows

    def column(self, slots: Int64s, element: DataType, nulls: Bools | None) -> pa.Array:
        """Decode the elements that have these slots to one column."""
        source, root = self._source, element.root
        if root in FIXED_STRUCTS:
            dtype = np.dtype(NUMPY_OF_ROOT[root])
            values = source.words[slots].astype(f"<u{dtype.itemsize}").view(dtype)
            return to_fixed(values, element, nulls)
        words = source.words[slots]
        if nulls is not None:
            words[nulls] = 0  # the slot of a null may have any bytes
        if is_compact(element):
            millis = words.view(np.int64)
            if root == "DECIMAL":
                return to_unscaled(millis, element, nulls)
            return to_timestamps(millis, np.zeros(len(millis), np.int64), element, nulls)
        low = (words & np.uint64(0xFFFFFFFF)).astype(np.int64)
        positions = self._starts[self._block] + (words >> np.uint64(32)).astype(np.int64)
        if root in TIMESTAMP_ROOTS:
            positions, _ = self._entries(positions, np.full(len(low), 8), nulls)
            millis = source.words[positions].view(np.int64)
            if nulls is not None:
                millis[nulls] = 0
            return to_timestamps(millis, low, element, nulls)
        if root in TEXT_ROOTS or root in BYTES_ROOTS:
            return self._text(slots, positions, low, element, nulls)
        positions, sizes = self._entries(positions, low, nulls)
        if root == "DECIMAL":
            return to_big_unscaled(source, positions, sizes, element, nulls)
        return decode_nested(source, positions, positions + sizes, element, nulls, self._decode_rows)

    def _text(self, slots: Int64s, positions: Int64s, low: Int64s, element: DataType, nulls: Bools | None) -> pa.Array:
        marks = self._source.data.take(slots + MAX_INLINE_BYTES).astype(np.int64)
        inline = marks >= INLINE_MARK
        if nulls is not None:
            inline &= ~nulls
        inline_sizes = marks - INLINE_MARK
        wrong = inline & (inline_sizes > MAX_INLINE_BYTES)
        if wrong.any():
            raise CorruptRowError(f"an inline {element} cannot have {int(inline_sizes[first_row(wrong)])} bytes")
        absent = inline if nulls is None else inline | nulls
        positions, sizes = self._entries(positions, low, any_null(absent))
        positions = np.where(inline, slots, positions)
        sizes = np.where(inline, inline_sizes, sizes)
        return to_content(self._source, positions, sizes, element, nulls)

    def _entries(self, positions: Int64s, sizes: Int64s, absent: Bools | None) -> tuple[Int64s, Int64s]:
        """The checked starts and sizes of variable entries; without an entry, the start of the block and size 0."""
        begin = self._starts[self._block]
        if absent is not None:
            positions, sizes = np.where(absent, begin, positions), np.where(absent, 0, sizes)
        wrong = positions + sizes > self._ends[self._block]
        if wrong.any():
            raise CorruptRowError(f"the slot of element {first_row(wrong)} points past the end of its block")
        pointed = offsets_of(sizes)
        per_block = pointed[self._offsets[1:]] - pointed[self._offsets[:-1]]
        if (per_block > self._ends - self._starts).any():
            raise CorruptRowError("the slots of a block point to more bytes than the block has")
        return positions, sizes
