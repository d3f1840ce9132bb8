"""Worked examples of rows, arrays and maps, obtained from the reference encoders."""

from __future__ import annotations

from typing import Any, NamedTuple

from fluss.model import types as t

ALL_TYPES: tuple[t.DataType, ...] = (
    t.BooleanType(), t.TinyIntType(), t.SmallIntType(), t.IntType(), t.IntType(), t.BigIntType(), t.BigIntType(),
    t.FloatType(), t.DoubleType(), t.CharType(5), t.StringType(), t.BinaryType(4), t.BytesType(),
    t.DecimalType(10, 2), t.DecimalType(20, 3), t.DateType(), t.TimeType(3), t.TimestampType(3), t.TimestampType(6),
    t.TimestampLtzType(9), t.StringType(),
)  # fmt: skip
ALL_VALUES: tuple[Any, ...] = (
    True, -5, -300, 300, -1, 1234567890123, -1, 1.5, -2.25, "ab", "h\u00e9llo", b"\x01\x02",
    bytes.fromhex("deadbeef"), 12345, -12345678901234567890, 19782, 45296789, (1709210096789, 0),
    (1709210096789, 123000), (-1, 999999), None,
)  # fmt: skip
ALL_COMPACTED = bytes.fromhex(
    "00001001fbd4feac02ffffffff0fcb89ec8ff723ffffffffffffffffff010000c03f00000000000002c00261620668c3a96c6c6f02010204"
    "deadbeefb96009ff54ab567314e0f52ec69a0195d9cc1595a9f1a6df3195a9f1a6df31f8c007ffffffffffffffffff01bf843d"
)
ALL_INDEXED = bytes.fromhex(
    "0000100600000004000000090000000000000001fbd4fe2c010000ffffffffcb04fb711f010000ffffffffffffffff0000c03f0000000000"
    "0002c0616200000068c3a96c6c6f01020000deadbeef3930000000000000ff54ab567314e0f52e464d0000952cb3029554dcf48d01000095"
    "54dcf48d01000078e00100ffffffffffffffff3f420f00"
)
ALL_ALIGNED = bytes.fromhex(
    "00000010000000000100000000000000fb00000000000000d4fe0000000000002c01000000000000ffffffff00000000cb04fb711f010000"
    "ffffffffffffffff0000c03f0000000000000000000002c0616200000000008268c3a96c6c6f00860102000000000082deadbeef00000084"
    "393000000000000009000000b0000000464d000000000000952cb302000000009554dcf48d01000078e00100c00000003f420f00c8000000"
    "0000000000000000ff54ab567314e0f52e000000000000009554dcf48d010000ffffffffffffffff"
)


class GoldenRow(NamedTuple):
    """A row of columns, its values, and its bytes in a format."""

    types: tuple[t.DataType, ...]
    values: tuple[Any, ...]
    row: bytes


def _bytes(text: str) -> bytes:
    """Hex where `00x8` means eight bytes 00."""
    out = b""
    for word in text.replace("|", " ").split():
        byte, _, count = word.partition("x")
        out += bytes.fromhex(byte) * int(count or 1)
    return out


_ROW = t.RowType((t.RowField("a", t.IntType()), t.RowField("b", t.StringType())))
_INTS = "03000000 02000000 01000000 00000000 03000000 00000000"


def _one(data_type: t.DataType, value: Any, text: str) -> GoldenRow:
    return GoldenRow((data_type,), (value,), _bytes(text))


NESTED_COMPACTED = (
    _one(t.ArrayType(t.IntType()), [1, None, 3], "00 18 " + _INTS),
    _one(t.ArrayType(t.BooleanType()), [True, None, False], "00 10 03000000 02000000 01000000 00000000"),
    _one(
        t.ArrayType(t.StringType()),
        ["a", "longer-than-7", None, "1234567"],
        "00 38 04000000 04000000 6100000000000081 0d000000 28000000 00x8 3132333435363787"
        " 6c6f6e6765722d7468616e2d37000000",
    ),
    _one(
        t.ArrayType(t.DecimalType(20, 0)),
        [10, None, -1],
        "00 40 03000000 02000000 01000000 20000000 00x8 01000000 30000000 0a 00x15 ff 00x15",
    ),
    _one(
        t.ArrayType(t.TimestampType(6)),
        [(1698235273182, 123000), None],
        "00 20 02000000 02000000 78e00100 18000000 00x8 decfb5668b010000",
    ),
    _one(
        t.MapType(t.StringType(), t.IntType()),
        [("k", 1), ("k2", None)],
        "00 2c 18000000 02000000 00000000 6b00000000000081 6b32000000000082 02000000 02000000 01000000 00000000",
    ),
    _one(_ROW, [7, "x"], "00 04 00070178"),
    _one(
        t.ArrayType(_ROW),
        [[7, "x"], None, [300, None]],
        "00 30 03000000 02000000 04000000 20000000 00x8 03000000 28000000 0007017800000000 02ac020000000000",
    ),
    _one(
        t.ArrayType(t.ArrayType(t.IntType())),
        [[1, None, 3], None],
        "00 30 02000000 02000000 18000000 18000000 00x8 " + _INTS,
    ),
    _one(
        t.MapType(t.IntType(), _ROW),
        [(5, [7, "x"])],
        "00 2c 10000000 01000000 00000000 05000000 00000000 01000000 00000000 04000000 10000000 0007017800000000",
    ),
    GoldenRow(
        (t.ArrayType(t.IntType()), t.MapType(t.StringType(), t.IntType())),
        ([], []),
        _bytes("00 08 00x8 14 08000000 00x16"),
    ),
)
NESTED_INDEXED = (
    _one(t.ArrayType(t.IntType()), [1, None, 3], "00 18000000 " + _INTS),
    _one(_ROW, [7, "x"], "00 0a000000 00010000000700000078"),
    _one(
        t.ArrayType(_ROW),
        [[7, "x"], None, [300, None]],
        "00 40000000 03000000 02000000 0a000000 20000000 00x8 09000000 30000000 00010000000700000078 00x6"
        " 02 00000000 2c010000 00x7",
    ),
)
SMALL_INDEXED = GoldenRow(
    (t.IntType(), t.StringType(), t.StringType(), t.BigIntType()),
    (7, None, "hi", 9),
    _bytes("02 0200000000000000 07000000 6869 0900000000000000"),
)
SMALL_ALIGNED = GoldenRow(
    (t.IntType(), t.StringType(), t.BigIntType()),
    (7, "hello world", 42),
    _bytes("00x8 0700000000000000 0b000000 20000000 2a00000000000000 68656c6c6f20776f726c640000000000"),
)
# Values of a primary-key table, behind their schema id (section 23.6).
VALUE_TYPES: tuple[t.DataType, ...] = (t.IntType(nullable=False), t.StringType(), t.BigIntType())
VALUE_ROWS = (
    GoldenRow(VALUE_TYPES, (1, "alice", 100), _bytes("00 01 05 616c696365 64")),
    GoldenRow(VALUE_TYPES, (2, None, -1), _bytes("02 02 ffx9 01")),
)
