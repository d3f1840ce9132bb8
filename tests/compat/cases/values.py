"""Sample values of every data type that pyfluss can write, shared by the cases about types."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

UTC = datetime.UTC

# name: (Arrow type, the type as the server tells it, values)
SCALARS: dict[str, tuple[pa.DataType, str, list[Any]]] = {
    "bool": (pa.bool_(), "boolean", [True, False]),
    "tiny": (pa.int8(), "tinyint", [-128, 127]),
    "small": (pa.int16(), "smallint", [-32768, 32767]),
    "int": (pa.int32(), "int", [-(2**31), 2**31 - 1]),
    "big": (pa.int64(), "bigint", [-(2**63), 2**63 - 1]),
    "float": (pa.float32(), "float", [1.5, float("-inf")]),
    "double": (pa.float64(), "double", [-0.1, float("inf")]),
    "string": (pa.string(), "string", ["", "héllo \N{SNOWMAN} \N{GRINNING FACE}"]),
    "bytes": (pa.binary(), "bytes", [b"", b"\x00\xff\x80"]),
    "binary": (pa.binary(4), "binary(4)", [b"abcd", b"\x00\x00\x00\x00"]),
    "decimal": (pa.decimal128(10, 2), "decimal(10,2)", [Decimal("-12345678.90"), Decimal("0.01")]),
    "decimal18": (pa.decimal128(18, 0), "decimal(18,0)", [Decimal(10**18 - 1), Decimal(-(10**18) + 1)]),
    "decimal38": (
        pa.decimal128(38, 10),
        "decimal(38,10)",
        [Decimal("1234567890123456789012345678.0123456789"), Decimal("-0.0000000001")],
    ),
    "date": (pa.date32(), "date", [datetime.date(1969, 12, 31), datetime.date(2024, 2, 29)]),
    "time0": (pa.time32("s"), "time", [datetime.time(0, 0), datetime.time(23, 59, 59)]),
    "time3": (pa.time32("ms"), "time(3)", [datetime.time(1, 2, 3, 4000), datetime.time(23, 59, 59, 999000)]),
    "time6": (pa.time64("us"), "time(6)", [datetime.time(1, 2, 3, 4000), datetime.time(0, 0, 0, 1000)]),
    "time9": (pa.time64("ns"), "time(9)", [datetime.time(1, 2, 3, 4000), datetime.time(12, 0)]),
    "ts0": (pa.timestamp("s"), "timestamp(0)", [datetime.datetime(2024, 1, 2, 3, 4, 5), datetime.datetime(1960, 1, 1)]),
    "ts3": (
        pa.timestamp("ms"),
        "timestamp(3)",
        [datetime.datetime(2024, 1, 2, 3, 4, 5, 6000), datetime.datetime(1960, 1, 1)],
    ),
    "ts6": (
        pa.timestamp("us"),
        "timestamp",
        [datetime.datetime(2024, 1, 2, 3, 4, 5, 6), datetime.datetime(1960, 1, 1)],
    ),
    "ts9": (
        pa.timestamp("ns"),
        "timestamp(9)",
        [datetime.datetime(2024, 1, 2, 3, 4, 5, 6), datetime.datetime(2000, 1, 1)],
    ),
    "ltz0": (pa.timestamp("s", "UTC"), "timestamp_ltz(0)", [datetime.datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC)]),
    "ltz3": (pa.timestamp("ms", "UTC"), "timestamp_ltz(3)", [datetime.datetime(2024, 1, 2, 3, 4, 5, 6000, UTC)]),
    "ltz6": (pa.timestamp("us", "UTC"), "timestamp_ltz", [datetime.datetime(2024, 1, 2, 3, 4, 5, 6, UTC)]),
    "ltz9": (pa.timestamp("ns", "UTC"), "timestamp_ltz(9)", [datetime.datetime(2024, 1, 2, 3, 4, 5, 6, UTC)]),
}

_ITEM = pa.struct(
    [("sku", pa.string()), ("price", pa.decimal128(12, 3)), ("seen", pa.list_(pa.timestamp("us", "UTC")))]
)
_SEEN = datetime.datetime(2024, 1, 2, 3, 4, 5, 6, UTC)

# Maps are given and come back as lists of pairs, rows as dicts.
NESTED: dict[str, tuple[pa.DataType, str, list[Any]]] = {
    "ints": (pa.list_(pa.int32()), "array<int>", [[1, None, 3], []]),
    "texts": (pa.list_(pa.string()), "array<string>", [["a", "", None], ["x"]]),
    "grid": (pa.list_(pa.list_(pa.float64())), "array<array<double>>", [[[1.0], [], None, [2.0, None]], [[]]]),
    "map": (pa.map_(pa.string(), pa.int64()), "map<string NOT NULL,bigint>", [[("a", 1), ("b", None)], []]),
    "codes": (pa.map_(pa.int32(), pa.binary()), "map<int NOT NULL,bytes>", [[(1, b"\x00"), (-1, None)], [(0, b"")]]),
    "row": (pa.struct([("x", pa.int32()), ("y", pa.string())]), "row<x: int, y: string>", [{"x": 1, "y": None}]),
    "deep": (
        pa.list_(pa.map_(pa.string(), _ITEM)),
        "array<map<string NOT NULL,row<sku: string, price: decimal(12,3), seen: array<timestamp_ltz>>>>",
        [[[("k", {"sku": "s", "price": Decimal("1.500"), "seen": [_SEEN, None]}), ("n", None)], None, []], []],
    ),
}

ALL = {**SCALARS, **NESTED}


def schema_of(types: dict[str, tuple[pa.DataType, str, list[Any]]]) -> pa.Schema:
    """One nullable column per type and an integer column that is never null."""
    fields = [pa.field(name, arrow) for name, (arrow, _, _) in types.items()]
    return pa.schema([pa.field("id", pa.int32(), nullable=False), *fields])


def rows_of(types: dict[str, tuple[pa.DataType, str, list[Any]]]) -> list[dict[str, Any]]:
    """Two rows of values and, around them, rows of nulls."""
    rows: list[dict[str, Any]] = []
    for number in range(5):
        if number % 2 == 0:
            rows.append({"id": number, **dict.fromkeys(types)})
        else:
            pick = number // 2
            rows.append({"id": number, **{name: values[pick % len(values)] for name, (_, _, values) in types.items()}})
    return rows
