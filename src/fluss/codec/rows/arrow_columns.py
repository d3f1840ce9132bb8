"""Converts whole columns between Arrow arrays and the numbers that rows store; `values.py` converts single values.

`from_*` return what an encoder writes: int32 for DATE and TIME milliseconds, (millis, nanos) for timestamps, unscaled
numbers for decimals. `to_*` build the Arrow array of the column's type from them. Units follow the precision of the
type; sub-millisecond digits of TIME are cut off. Arrow inputs of another width or unit are cast first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from fluss.codec.arrow.types import to_arrow_type
from fluss.codec.rows.column_buffers import (
    MAX_SOURCE_BYTES,
    PaddedSource,
    first_row,
    gather,
    null_mask,
    offsets_of,
    ragged,
    validity_buffer,
)
from fluss.codec.rows.values import (
    MAX_DECIMAL_BYTES,
    MAX_TIME_MILLIS,
    NANOS_PER_MILLI,
    TEXT_ROOTS,
    CorruptRowError,
    RowValueError,
)
from fluss.codec.rows.varint import Bools, Int64s, UInt64s
from fluss.model.types import BinaryType, DataType, DecimalType, MapType, RowType

if TYPE_CHECKING:
    import numpy.typing as npt

    from fluss.codec.rows.varint import Numbers

_MILLIS_PER_SECOND = 1000
_PER_MILLI_OF_UNIT = {"us": 1000, "ns": NANOS_PER_MILLI}
NUMPY_OF_ROOT: dict[str, type[np.generic]] = {
    "BOOLEAN": np.uint8,
    "TINYINT": np.int8,
    "SMALLINT": np.int16,
    "INTEGER": np.int32,
    "BIGINT": np.int64,
    "FLOAT": np.float32,
    "DOUBLE": np.float64,
    "DATE": np.int32,
    "TIME_WITHOUT_TIME_ZONE": np.int32,
}


def as_column(array: pa.Array, data_type: DataType) -> pa.Array:
    """Cast an array to the Arrow type of its column, which is not a nested one; a lossy cast is refused."""
    wanted = to_arrow_type(data_type)
    if array.type == wanted:
        return array
    try:
        if pa.types.is_timestamp(array.type) and pa.types.is_timestamp(wanted) and array.type.unit == wanted.unit:
            return array.view(wanted)  # only the time zone differs, which rows do not store
        return array.cast(wanted)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise RowValueError(f"{data_type} cannot hold Arrow values of type {array.type}: {error}") from None


def _stored(array: pa.Array, dtype: npt.DTypeLike, per_value: int = 1) -> Numbers:
    """The values of a fixed-width array as numbers, without those outside of its slice; zero where null."""
    count = len(array) * per_value
    if count == 0:
        return np.empty(0, dtype)
    width = np.dtype(dtype).itemsize * per_value
    values = np.frombuffer(array.buffers()[1], dtype, count, array.offset * width)
    nulls = null_mask(array)
    if nulls is not None:
        values = values.copy()
        values.reshape(len(array), per_value)[nulls] = 0
    return values


def from_fixed(array: pa.Array, data_type: DataType) -> Numbers:
    """The numbers of a fixed-width column, in the width of its type; TIME as int32 milliseconds."""
    if data_type.root == "BOOLEAN":
        return _stored(array.cast(pa.uint8()), np.uint8)
    if data_type.root != "TIME_WITHOUT_TIME_ZONE":
        return _stored(array, NUMPY_OF_ROOT[data_type.root])
    if pa.types.is_time32(array.type):
        values = _stored(array, np.int32)
        return values * np.int32(_MILLIS_PER_SECOND) if array.type.unit == "s" else values
    return (_stored(array, np.int64) // _PER_MILLI_OF_UNIT[array.type.unit]).astype(np.int32)


def to_fixed(values: Numbers, data_type: DataType, nulls: Bools | None) -> pa.Array:
    """The Arrow array for numbers in the form that `from_fixed` returns."""
    arrow_type = to_arrow_type(data_type)
    if nulls is not None:
        values[nulls] = 0
    if data_type.root == "BOOLEAN":
        bits = np.packbits(values != 0, bitorder="little")
        return pa.Array.from_buffers(arrow_type, len(values), [validity_buffer(nulls), pa.py_buffer(bits)])
    if data_type.root == "TIME_WITHOUT_TIME_ZONE":
        wrong = (values < 0) | (values > MAX_TIME_MILLIS)
        if wrong.any():
            row = first_row(wrong)
            raise CorruptRowError(
                f"{data_type} of row {row} has {int(values[row])}, which is not a number of milliseconds within a day"
            )
        if arrow_type.unit == "s":
            values = values // np.int32(_MILLIS_PER_SECOND)
        elif arrow_type.unit != "ms":
            values = values.astype(np.int64) * _PER_MILLI_OF_UNIT[arrow_type.unit]
    return _primitive(values, arrow_type, nulls)


def _primitive(values: Numbers, arrow_type: pa.DataType, nulls: Bools | None) -> pa.Array:
    buffers = [validity_buffer(nulls), pa.py_buffer(np.ascontiguousarray(values))]
    return pa.Array.from_buffers(arrow_type, len(values), buffers)


def from_timestamps(array: pa.Array) -> tuple[Int64s, Int64s]:
    """The milliseconds since 1970, rounded down, and the nanoseconds within the millisecond."""
    values, unit = _stored(array, np.int64), array.type.unit
    if unit == "ms":
        return values, np.zeros(len(values), np.int64)
    if unit == "s":
        limit = (2**63 - 1) // _MILLIS_PER_SECOND
        if ((values > limit) | (values < -limit)).any():
            raise RowValueError("a timestamp in seconds is too far from 1970 to be stored as 64-bit milliseconds")
        return values * _MILLIS_PER_SECOND, np.zeros(len(values), np.int64)
    per_milli = _PER_MILLI_OF_UNIT[unit]
    millis = values // per_milli
    return millis, (values - millis * per_milli) * (NANOS_PER_MILLI // per_milli)


def to_timestamps(millis: Int64s, nanos: Int64s, data_type: DataType, nulls: Bools | None) -> pa.Array:
    """The Arrow array for milliseconds and nanoseconds; times out of range of its unit are refused."""
    wrong = (nanos < 0) | (nanos >= NANOS_PER_MILLI)
    if wrong.any():
        row = first_row(wrong)
        raise CorruptRowError(f"{data_type} of row {row} has {int(nanos[row])} nanoseconds within a millisecond")
    arrow_type = to_arrow_type(data_type)
    if arrow_type.unit == "ms":
        values = millis
    elif arrow_type.unit == "s":
        values = np.where(millis < 0, millis + (_MILLIS_PER_SECOND - 1), millis) // _MILLIS_PER_SECOND
    else:
        per_milli = _PER_MILLI_OF_UNIT[arrow_type.unit]
        parts = nanos // (NANOS_PER_MILLI // per_milli)
        last, last_part = divmod(2**63 - 1, per_milli)
        first, first_part = divmod(-(2**63), per_milli)
        far = (millis > last) | (millis < first)
        far |= ((millis == last) & (parts > last_part)) | ((millis == first) & (parts < first_part))
        if far.any():
            row = first_row(far)
            raise RowValueError(f"{data_type} of row {row} ({int(millis[row])} ms) is out of range of {arrow_type}")
        values = millis * per_milli + parts  # if the product overflows, adding `parts` wraps back into the range
    return _primitive(values, arrow_type, nulls)


def from_unscaled(array: pa.Array, data_type: DataType) -> Int64s:
    """The unscaled int64 numbers of a DECIMAL column of at most 18 digits."""
    low, high = from_wide_unscaled(array)
    _check_digits(low, high, data_type, RowValueError)
    return low.view(np.int64)


def to_unscaled(values: Int64s, data_type: DataType, nulls: Bools | None) -> pa.Array:
    """The Arrow array of a DECIMAL column, from unscaled int64 numbers."""
    if nulls is not None:
        values[nulls] = 0
    return to_wide_unscaled(values.view(np.uint64), values >> 63, data_type, nulls)


def from_big_unscaled(array: pa.Array, data_type: DataType) -> pa.Array:
    """The unscaled numbers in the fewest big-endian bytes, as a binary array with the nulls of the column."""
    low, high = from_wide_unscaled(array)
    _check_digits(low, high, data_type, RowValueError)
    count = len(array)
    matrix = np.empty((count, 2), ">u8")
    matrix[:, 0] = high.view(np.uint64)
    matrix[:, 1] = low
    digits = matrix.view(np.uint8).reshape(count, MAX_DECIMAL_BYTES)
    # A leading byte is redundant if it and the top bit after it only repeat the sign.
    sign = (high >> 63).astype(np.int8).view(np.uint8)[:, None]
    redundant = (digits[:, :-1] == sign) & ((digits[:, 1:] ^ sign) < 0x80)
    lead = np.logical_and.accumulate(redundant, axis=1).sum(axis=1)
    flat = digits[np.arange(MAX_DECIMAL_BYTES) >= lead[:, None]]
    return ragged(flat, offsets_of(MAX_DECIMAL_BYTES - lead), null_mask(array))


def to_big_unscaled(
    source: PaddedSource, starts: Int64s, sizes: Int64s, data_type: DataType, nulls: Bools | None
) -> pa.Array:
    """The Arrow array of a DECIMAL column, from big-endian numbers in `source`."""
    wrong = (sizes < 1) | (sizes > MAX_DECIMAL_BYTES)
    if nulls is not None:
        wrong &= ~nulls
    if wrong.any():
        row = first_row(wrong)
        raise CorruptRowError(f"{data_type} of row {row} has {int(sizes[row])} bytes; 1 to 16 are possible")
    place = np.arange(MAX_DECIMAL_BYTES) - (MAX_DECIMAL_BYTES - sizes)[:, None]
    digits = source.data.take(starts[:, None] + np.maximum(place, 0))
    sign = np.where(source.data.take(starts) > 0x7F, np.uint8(0xFF), np.uint8(0))
    digits = np.where(place >= 0, digits, sign[:, None])
    if nulls is not None:
        digits[nulls] = 0
    halves = np.ascontiguousarray(digits).view(">u8").astype(np.uint64)
    return to_wide_unscaled(halves[:, 1].copy(), halves[:, 0].copy().view(np.int64), data_type, nulls)


def from_wide_unscaled(array: pa.Array) -> tuple[UInt64s, Int64s]:
    """The low and the high halves of the unscaled 128-bit numbers of a DECIMAL column."""
    pairs = _stored(array, np.uint64, 2).reshape(len(array), 2)
    return pairs[:, 0].copy(), pairs[:, 1].copy().view(np.int64)


def to_wide_unscaled(low: UInt64s, high: Int64s, data_type: DataType, nulls: Bools | None) -> pa.Array:
    """The Arrow array of a DECIMAL column, from the halves of unscaled 128-bit numbers."""
    _check_digits(low, high, data_type, CorruptRowError)
    pairs = np.empty((len(low), 2), np.uint64)
    pairs[:, 0] = low
    pairs[:, 1] = high.view(np.uint64)
    buffers = [validity_buffer(nulls), pa.py_buffer(pairs)]
    return pa.Array.from_buffers(to_arrow_type(data_type), len(low), buffers)


def _check_digits(low: UInt64s, high: Int64s, data_type: DataType, error: type[ValueError]) -> None:
    """Raise `error` if a 128-bit number has more digits than the precision allows."""
    assert isinstance(data_type, DecimalType)
    limit = 10**data_type.precision
    top, bottom = divmod(limit, 1 << 64)
    negative_top, negative_bottom = divmod(-limit, 1 << 64)
    too_large = (high > top) | ((high == top) & (low >= np.uint64(bottom)))
    too_small = (high < negative_top) | ((high == negative_top) & (low <= np.uint64(negative_bottom)))
    wrong = too_large | too_small
    if wrong.any():
        raise error(f"{data_type} of row {first_row(wrong)} holds a number of more than {data_type.precision} digits")


def from_content(array: pa.Array, data_type: DataType) -> pa.Array:
    """The values of a CHAR, STRING, BINARY or BYTES column as a binary array, with the nulls of the column."""
    if isinstance(data_type, BinaryType):
        return array.cast(pa.binary())
    return array.view(pa.binary()) if data_type.root in TEXT_ROOTS else array


def to_content(
    source: PaddedSource, starts: Int64s, sizes: Int64s, data_type: DataType, nulls: Bools | None
) -> pa.Array:
    """A CHAR, STRING, BINARY or BYTES column from slices of `source`. Strings must be UTF-8; BINARY(n) gets n bytes."""
    if isinstance(data_type, BinaryType):
        return _fixed_size_binary(source, starts, sizes, data_type, nulls)
    content = gather(source, starts, sizes, nulls)
    if data_type.root not in TEXT_ROOTS:
        return content
    try:
        return content.cast(pa.string())
    except pa.ArrowInvalid:
        raise CorruptRowError(f"{data_type} holds bytes that are not UTF-8") from None


def _fixed_size_binary(
    source: PaddedSource, starts: Int64s, sizes: Int64s, data_type: BinaryType, nulls: Bools | None
) -> pa.Array:
    count, width = len(starts), data_type.length
    if count * width > MAX_SOURCE_BYTES:
        raise RowValueError(f"{count} values of {data_type} exceed {MAX_SOURCE_BYTES} bytes; decode fewer rows")
    kept = np.minimum(sizes, width)
    offsets = offsets_of(kept)
    steps = np.arange(int(offsets[-1]))
    out = np.zeros(count * width, np.uint8)
    target = np.repeat(np.arange(count) * width - offsets[:-1], kept) + steps
    out[target] = source.data.take(np.repeat(starts - offsets[:-1], kept) + steps)
    return pa.Array.from_buffers(pa.binary(width), count, [validity_buffer(nulls), pa.py_buffer(out)])


def list_array(data_type: DataType, offsets: Int64s, values: pa.Array) -> pa.Array:
    """The Arrow array of an ARRAY column, from its offsets and flattened elements."""
    buffers = [None, pa.py_buffer(offsets.astype(np.int32))]
    return pa.Array.from_buffers(to_arrow_type(data_type), len(offsets) - 1, buffers, children=[values])


def map_array(data_type: MapType, offsets: Int64s, keys: pa.Array, values: pa.Array) -> pa.Array:
    """The Arrow array of a MAP column, from its offsets and flattened keys and values."""
    # Reading the null count makes Arrow compute it: pyarrow before 26 aborts the process if it is not computed yet.
    if keys.null_count:
        raise RowValueError(f"{data_type} cannot hold a null key, but {keys.null_count} of {len(keys)} keys are null")
    arrow_type = to_arrow_type(data_type)
    entry_type = pa.struct([arrow_type.key_field, arrow_type.item_field])
    entries = pa.Array.from_buffers(entry_type, len(keys), [None], children=[keys, values])
    return list_array(data_type, offsets, entries)


def struct_array(data_type: RowType, count: int, children: Sequence[pa.Array]) -> pa.Array:
    """The Arrow array of a ROW column, from the columns of its fields."""
    return pa.Array.from_buffers(to_arrow_type(data_type), count, [None], children=list(children))
