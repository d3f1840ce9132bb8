"""Building blocks of the column-wise codecs: padded sources, ragged bytes, null masks.

The column-wise codecs keep one position per row and process one column for all rows at a time, so the number of array
operations depends on the schema and not on the row count. "Ragged" means byte strings of different sizes, one per row,
concatenated, with int32 offsets, as in an Arrow binary array.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fluss.codec.buffers import ReadableBuffer, byte_view
from fluss.codec.rows.values import CorruptRowError, RowValueError
from fluss.codec.rows.varint import Bools, Bytes, Int64s, UInt64s, varint_bytes

if TYPE_CHECKING:
    from fluss.codec.rows.varint import Numbers

# Two words of eight bytes may be loaded even at the last position.
_SPARE_BYTES = 24
# Offsets are int32, as in Arrow's binary arrays, which limits the bytes of one array.
MAX_SOURCE_BYTES = 2**31 - 1 - _SPARE_BYTES
_WORD_BYTES = 8
# _LEADING[n] is the mask of the upper n bytes of a word.
_LEADING = np.array([(1 << 64) - (1 << 8 * (_WORD_BYTES - size)) for size in range(_WORD_BYTES + 1)], np.uint64)


class PaddedSource:
    """A copy of the bytes to decode, with spare zero bytes appended.

    `data` are the bytes. `words[i]` is the number in the eight bytes from `i` on: one index loads a word per row.
    Valid for positions from 0 to `size`, both included, and up to eight bytes beyond.
    """

    def __init__(self, buffer: ReadableBuffer) -> None:
        view = byte_view(buffer)
        if len(view) > MAX_SOURCE_BYTES:
            raise RowValueError(f"at most {MAX_SOURCE_BYTES} bytes can be decoded at once, got {len(view)}")
        self.size = len(view)
        self.data: Bytes = np.zeros(self.size + _SPARE_BYTES, np.uint8)
        self.data[: self.size] = np.frombuffer(view, np.uint8)
        words: UInt64s = np.ndarray((self.size + _SPARE_BYTES - 7,), "<u8", self.data, strides=(1,))
        self.words: UInt64s = words


def first_row(mask: Bools) -> int:
    """The number of the first row for which `mask` is true, for error messages."""
    return int(np.flatnonzero(mask)[0])


def advance(cursors: Int64s, sizes: Int64s | int, ends: Int64s, what: object) -> Int64s:
    """The positions after a field; CorruptRowError if one is outside its row. Called before every read of a field."""
    moved = cursors + sizes
    beyond = moved > ends
    if beyond.any():
        raise CorruptRowError(f"{what} of row {first_row(beyond)} runs past the end of the row")
    return moved


def validity_buffer(nulls: Bools | None) -> pa.Buffer | None:
    """Arrow's validity bitmap for a null mask; None when there are no nulls."""
    return None if nulls is None else pa.py_buffer(np.packbits(~nulls, bitorder="little"))


def null_mask(array: pa.Array) -> Bools | None:
    """The null mask of an Arrow array; None if it has no nulls, for which all callers have a faster way."""
    if array.null_count == 0:
        return None
    mask: Bools = array.is_null().to_numpy(zero_copy_only=False)
    return mask


def any_null(nulls: Bools) -> Bools | None:
    """The mask itself, or None if nothing in it is set."""
    return nulls if nulls.any() else None


def offsets_of(sizes: Int64s) -> Int64s:
    """The offsets of values with these sizes: they start at 0 and have one entry more than the sizes."""
    offsets = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    return offsets


def ragged(data: Numbers, offsets: Int64s, nulls: Bools | None = None) -> pa.Array:
    """An Arrow binary array of the byte strings between `offsets` in `data`, which is not copied."""
    if len(offsets) and offsets[-1] > MAX_SOURCE_BYTES:
        raise RowValueError(f"at most {MAX_SOURCE_BYTES} bytes can be encoded at once, got {int(offsets[-1])}")
    buffers = [validity_buffer(nulls), pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)


def fixed_size(matrix: Numbers, nulls: Bools | None = None) -> pa.Array:
    """A binary array whose values are the rows of a matrix of bytes, or the bytes of an array's numbers."""
    width = matrix.itemsize * (matrix.shape[1] if matrix.ndim == 2 else 1)
    count = len(matrix)
    return ragged(np.ascontiguousarray(matrix), np.arange(count + 1, dtype=np.int64) * width, nulls)


def varints(values: UInt64s, nulls: Bools | None) -> pa.Array:
    """Encode numbers as a binary array of variable-length integers."""
    data, sizes = varint_bytes(values)
    return ragged(data, offsets_of(sizes), nulls)


def zeros(sizes: Int64s) -> pa.Array:
    """A binary array of zero bytes with these sizes, for padding."""
    offsets = offsets_of(sizes)
    return ragged(np.zeros(int(offsets[-1]), np.uint8), offsets)


def sizes_of(array: pa.Array) -> Int64s:
    """The sizes in bytes of the values of a binary array, 0 where null."""
    lengths = pc.binary_length(array)
    if lengths.null_count:
        lengths = lengths.fill_null(0)
    sizes: Int64s = lengths.to_numpy(zero_copy_only=False).astype(np.int64)
    return sizes


def total_sizes(components: Sequence[pa.Array], count: int) -> Int64s:
    """The sizes in bytes of the rows that `join` makes of the components."""
    total = np.zeros(count, np.int64)
    for component in components:
        total += sizes_of(component)
    return total


def join(components: Sequence[pa.Array], count: int) -> pa.Array:
    """Concatenate binary arrays row by row in one kernel; a null adds nothing."""
    if not components:
        return ragged(np.empty(0, np.uint8), np.zeros(count + 1, np.int64))
    if sum(map(_data_bytes, components)) > MAX_SOURCE_BYTES:
        raise RowValueError(f"the rows exceed {MAX_SOURCE_BYTES} bytes in total; encode fewer rows at a time")
    options = pc.JoinOptions(null_handling="replace", null_replacement="")
    arguments = [*components, pa.scalar(b"", pa.binary())]
    joined: pa.Array = pc.call_function("binary_join_element_wise", arguments, options)
    return joined


def _data_bytes(array: pa.Array) -> int:
    """An upper bound of the bytes of a binary array's values: nulls may own bytes too."""
    if not len(array):
        return 0
    first, last = np.frombuffer(array.buffers()[1], np.int32, len(array) + 1, array.offset * 4)[[0, -1]].tolist()
    return int(last - first)


def binary_parts(array: pa.Array) -> tuple[Any, Int64s]:
    """The data of a binary array, and the offsets of the values in its slice."""
    if not len(array):
        return np.empty(0, np.uint8), np.zeros(1, np.int64)
    offsets = np.frombuffer(array.buffers()[1], np.int32, len(array) + 1, array.offset * 4).astype(np.int64)
    data = array.buffers()[2]
    return (np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)), offsets


def first_words(array: pa.Array) -> UInt64s:
    """The first eight bytes of every value of a binary array without nulls, as numbers with the same sort order."""
    data, offsets = binary_parts(array)
    first, last = int(offsets[0]), int(offsets[-1])
    words = PaddedSource(memoryview(data)[first:last]).words[offsets[:-1] - first]
    leading: UInt64s = words.byteswap() & _LEADING[np.minimum(np.diff(offsets), _WORD_BYTES)]
    return leading


def gather(source: PaddedSource, starts: Int64s, sizes: Int64s, nulls: Bools | None = None) -> pa.Array:
    """A binary array of slices of `source`. They must be inside it, with size 0 where null.

    If the slices are in ascending order, they are taken as every second value of one binary array over the whole
    source, which is twice as fast as an index per byte. Any other order uses the index.
    """
    count, ends = len(starts), starts + sizes
    if count == 0:
        return ragged(np.empty(0, np.uint8), np.zeros(1, np.int64))
    if (starts[1:] >= ends[:-1]).all():
        pairs = np.empty((count, 2), np.int64)
        pairs[:, 0] = starts
        pairs[:, 1] = ends
        laid = ragged(source.data, pairs.ravel())
        taken = laid.take(pa.array(np.arange(0, 2 * count, 2)))
        if nulls is None:
            return taken
        buffers = taken.buffers()
        return pa.Array.from_buffers(pa.binary(), count, [validity_buffer(nulls), buffers[1], buffers[2]])
    offsets = offsets_of(sizes)
    index = np.repeat(starts - offsets[:-1], sizes) + np.arange(int(offsets[-1]))
    return ragged(source.data.take(index), offsets, nulls)


def spread(array: pa.Array, nulls: Bools | None) -> pa.Array:
    """Expand an array that has only the rows which are not null to all rows."""
    if nulls is None:
        return array
    return array.take(pa.array(np.cumsum(~nulls) - 1, mask=nulls))
