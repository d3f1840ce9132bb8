"""Random schemas and Python values for them, edges more often than not, for tests of what goes in and comes out."""

from __future__ import annotations

import datetime
import decimal
import math
import random
from collections.abc import Callable
from typing import Any, NamedTuple

import pandas as pd

from fluss.model import types as t

D = decimal.Decimal
UTC = datetime.UTC
MAX_DEPTH = 2
EPOCH = datetime.datetime(1970, 1, 1)

_PLAIN: list[Callable[[random.Random], t.DataType]] = [
    lambda rng: t.BooleanType(),
    lambda rng: t.TinyIntType(),
    lambda rng: t.SmallIntType(),
    lambda rng: t.IntType(),
    lambda rng: t.BigIntType(),
    lambda rng: t.CharType(rng.randint(1, 4)),
    lambda rng: t.StringType(),
    lambda rng: t.BinaryType(rng.randint(1, 3)),
    lambda rng: t.BytesType(),
    lambda rng: _drawn_decimal(rng),
    lambda rng: t.DateType(),
    lambda rng: t.TimeType(rng.choice([0, 3, 6, 9])),
    lambda rng: t.TimestampType(rng.choice([0, 3, 6, 9])),
    lambda rng: t.TimestampLtzType(rng.choice([0, 3, 6, 9])),
]
_FLOATS: list[Callable[[random.Random], t.DataType]] = [lambda rng: t.FloatType(), lambda rng: t.DoubleType()]


class DrawnSchema(NamedTuple):
    """Columns by name, and the names of the key columns."""

    columns: dict[str, t.DataType]
    key: list[str]


def drawn_schema(rng: random.Random) -> DrawnSchema:
    """3 to 8 columns, of which one to three of a plain type are the key, wherever they stand."""
    count = rng.randint(3, 8)
    key_positions = sorted(rng.sample(range(count), rng.choice([1, 1, 2, 2, 3])))
    columns = {
        f"c{position}": rng.choice(_PLAIN)(rng).not_null() if position in key_positions else drawn_type(rng)
        for position in range(count)
    }
    return DrawnSchema(columns, [f"c{position}" for position in key_positions])


def drawn_type(rng: random.Random, depth: int = MAX_DEPTH) -> t.DataType:
    """Any type, with at most so many ARRAY, MAP and ROW around its leaves."""
    kind = rng.randrange(10 if depth else 7)
    if kind < 7:
        return rng.choice(_PLAIN + _FLOATS)(rng)
    if kind == 7:
        return t.ArrayType(drawn_type(rng, depth - 1))
    if kind == 8:
        return t.MapType(rng.choice([t.StringType(), t.IntType()]).not_null(), drawn_type(rng, depth - 1))
    return t.RowType(tuple(t.RowField(f"f{number}", drawn_type(rng, depth - 1)) for number in range(rng.randint(1, 3))))


def _drawn_decimal(rng: random.Random) -> t.DataType:
    precision = rng.choice([1, 5, 10, 18, 19, 30, 38])
    return t.DecimalType(precision, rng.randint(0, precision))


def drawn_value(rng: random.Random, data_type: t.DataType, *, nanos: bool = False) -> Any:
    """A value of the kind that the type has, which fits; null now and then if the type allows it.

    With `nanos`, moments of nine digits may have digits below a microsecond, and are of pandas then.
    """
    if data_type.nullable and rng.random() < 0.1:
        return None
    root = data_type.root
    bits = {"TINYINT": 8, "SMALLINT": 16, "INTEGER": 32, "BIGINT": 64}.get(root)
    if bits is not None:
        limit = 1 << bits - 1
        return rng.choice([0, 1, -1, limit - 1, -limit, rng.randrange(-limit, limit)])
    if isinstance(data_type, t.DecimalType):
        limit = 10**data_type.precision
        number = rng.choice([0, 1, limit - 1, 1 - limit, rng.randrange(-limit + 1, limit)])
        return D((int(number < 0), tuple(map(int, str(abs(number)))), -data_type.scale))
    if isinstance(data_type, t.ArrayType):
        return [drawn_value(rng, data_type.element, nanos=nanos) for _ in range(rng.choice([0, 1, 3]))]
    if isinstance(data_type, t.MapType):
        keys = {drawn_value(rng, data_type.key.not_null()) for _ in range(rng.choice([0, 1, 3]))}
        return [(key, drawn_value(rng, data_type.value, nanos=nanos)) for key in sorted(keys)]
    if isinstance(data_type, t.RowType):
        return {field.name: drawn_value(rng, field.data_type, nanos=nanos) for field in data_type.fields}
    value = _drawn_plain(rng, data_type)
    if nanos and isinstance(data_type, t.TimestampType | t.TimestampLtzType) and data_type.precision == 9:
        return with_nanos(rng, value)
    return value


def with_nanos(rng: random.Random, moment: datetime.datetime) -> datetime.datetime:
    """The moment with digits below a microsecond, more often than not."""
    nanos = rng.choice([0, 1, 499, 500, 999])
    return pd.Timestamp(moment).as_unit("ns") + pd.Timedelta(nanos, "ns") if nanos else moment


def _drawn_plain(rng: random.Random, data_type: t.DataType) -> Any:
    root = data_type.root
    if root == "BOOLEAN":
        return rng.random() < 0.5
    if root in ("FLOAT", "DOUBLE"):
        edges = [0.0, -0.0, 1.5, math.inf, -math.inf, math.nan, 2.0**-149, 2.0**127, rng.uniform(-1e6, 1e6)]
        return rng.choice(edges if root == "FLOAT" else [*edges, 5e-324, 1.7976931348623157e308])
    if root in ("CHAR", "STRING"):
        length = data_type.length if isinstance(data_type, t.CharType) else rng.choice([0, 1, 5, 40])
        return "".join(rng.choice("aZ5 ä€😀\0'") for _ in range(rng.randint(0, length)))
    if isinstance(data_type, t.BinaryType):
        return rng.choice([bytes(data_type.length), b"\xff" * data_type.length, rng.randbytes(data_type.length)])
    if root == "BYTES":
        return rng.randbytes(rng.choice([0, 1, 5, 40]))
    if root == "DATE":
        return datetime.date(1, 1, 1) + datetime.timedelta(rng.choice([0, 719_161, 719_162, 3_652_058]))
    step = 10 ** (6 - min(6, getattr(data_type, "precision", 6)))
    micros = rng.choice([0, 1, 999, 1000, 123_456, 999_999]) // step * step
    if isinstance(data_type, t.TimeType):
        # Rows of primary-key tables hold milliseconds.
        return datetime.time(rng.randrange(24), rng.randrange(60), rng.randrange(60), micros // 1000 * 1000)
    assert isinstance(data_type, t.TimestampType | t.TimestampLtzType)
    years = [1678, 1969, 1970, 2026, 2261] if data_type.precision > 6 else [1, 1677, 1969, 1970, 2026, 9998]
    moment = datetime.datetime(rng.choice(years), 12, 31, rng.choice([0, 23]), 59, 59, micros)
    return moment.replace(tzinfo=UTC) if isinstance(data_type, t.TimestampLtzType) else moment


def drawn(rng: random.Random, *, nanos: bool = False) -> Any:
    """A value of any kind, for any column: it may fit or not. With `nanos`, also moments of pandas, and NaN."""
    kind = rng.randrange(13 if nanos else 11)
    if kind == 11:
        return math.nan
    if kind == 12:
        zone = rng.choice([None, UTC])
        return with_nanos(rng, datetime.datetime(rng.choice([1678, 1969, 2026]), 3, 1, 0, 5, 0, 999_999, zone))
    if kind == 0:
        return rng.choice([0, 1, -1, 127, 128, -129, 2**31 - 1, 2**31, 2**53, 2**53 + 1, 2**62, 2**63 - 1, -(2**63)])
    if kind == 1:
        return rng.choice([0.0, -0.0, 0.1, 1.5, 1.999, 5.0, 1e16, 1e39, 5e-324, math.inf, -math.inf])
    if kind == 2:
        return D(rng.randrange(-(10**6), 10**6)).scaleb(-rng.randrange(5))
    if kind == 3:
        return rng.choice(["", "a", "abc", "abcd", "äöü", "😀😀😀", "a\0", "5", "x" * 2000])
    if kind == 4:
        return rng.choice([b"", b"a", b"ab", b"\0\0", b"abc", b"\xff\xfe"])
    if kind == 5:
        return rng.random() < 0.5
    if kind == 6:
        return datetime.date(1, 1, 1) + datetime.timedelta(rng.randrange(3_652_059))
    micros = rng.choice([0, 1, 999, 1000, 123_000, 123_456, 999_999])
    if kind == 7:
        return datetime.time(rng.randrange(24), rng.randrange(60), rng.randrange(60), micros)
    moment = datetime.datetime(rng.choice([1, 1677, 1900, 1969, 1970, 2026, 2262, 9998]), 3, 1, rng.choice([0, 23]), 5)
    if kind == 8:
        return rng.choice([moment.replace(microsecond=micros), datetime.datetime(2026, 1, 1)])
    if kind == 9:
        return moment.replace(year=2026, microsecond=micros, tzinfo=UTC)
    return rng.choice([[1, -128, 5], [128], [], {"f0": D("1.5")}, {"f0": D("1.55")}, {"F0": D("1.5")}, {"f0": 7}])
