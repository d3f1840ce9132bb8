"""Partition values parsed from strings: the inverse of `partition_names.partition_value_text`.

Every string that the function returns is parsed without loss. pyfluss makes other strings in two cases; they are parsed
to the same values.

>>> from fluss.model.types import DateType
>>> partition_value("2025-05-27", DateType())
20235
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Callable, Mapping

from fluss.codec.rows.values import TEXT_ROOTS
from fluss.model.types import DataType

_EPOCH = datetime.datetime(1970, 1, 1)
_TIME = re.compile(r"(\d\d)-(\d\d)-(\d\d)_(\d{3})")
_TIMESTAMP = re.compile(r"(\d{4})-(\d\d)-(\d\d)-(\d\d)-(\d\d)-(\d\d)_(\d{0,9})")
_FLOAT = re.compile(r"-?\d+(_\d+)?(E-?\d+)?")
_FLOAT_NAMES = {"NaN": math.nan, "Inf": math.inf, "-Inf": -math.inf}
_NANOS_PER_MILLISECOND = 1_000_000


def partition_value(text: str, data_type: DataType) -> object:
    """Parse a string to a value in logical form (`codec.rows.values`); ValueError if it is not one of the type."""
    root = data_type.root
    if root in TEXT_ROOTS:
        return text
    read = _READERS.get(root)
    if read is None:
        raise ValueError(f"{data_type} cannot be the type of a partition column")
    try:
        return read(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a partition value of type {data_type}") from None


def _boolean(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError(text)
    return text == "true"


def _date(text: str) -> int:
    return (datetime.datetime.strptime(text, "%Y-%m-%d") - _EPOCH).days


def _time(text: str) -> int:
    hours, minutes, seconds, millis = _numbers(_TIME, text)
    return ((hours * 60 + minutes) * 60 + seconds) * 1000 + millis


def _timestamp(text: str) -> tuple[int, int]:
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        raise ValueError(text)
    *moment, fraction = match.groups()
    year, month, day, hour, minute, second = map(int, moment)
    elapsed = datetime.datetime(year, month, day, hour, minute, second) - _EPOCH
    millis, nanos = divmod(int(fraction.ljust(9, "0")), _NANOS_PER_MILLISECOND)
    return (elapsed.days * 86_400 + elapsed.seconds) * 1000 + millis, nanos


def _float(text: str) -> float:
    if text in _FLOAT_NAMES:
        return _FLOAT_NAMES[text]
    if not _FLOAT.fullmatch(text):
        raise ValueError(text)
    return float(text.replace("_", "."))


def _integer(text: str) -> int:
    if not re.fullmatch(r"-?\d+", text):
        raise ValueError(text)
    return int(text)


def _numbers(pattern: re.Pattern[str], text: str) -> list[int]:
    match = pattern.fullmatch(text)
    if match is None:
        raise ValueError(text)
    return [int(group) for group in match.groups()]


_READERS: Mapping[str, Callable[[str], object]] = {
    "BOOLEAN": _boolean,
    **dict.fromkeys(("TINYINT", "SMALLINT", "INTEGER", "BIGINT"), _integer),
    **dict.fromkeys(("BINARY", "BYTES"), bytes.fromhex),
    "DATE": _date,
    "TIME_WITHOUT_TIME_ZONE": _time,
    **dict.fromkeys(("FLOAT", "DOUBLE"), _float),
    **dict.fromkeys(("TIMESTAMP_WITHOUT_TIME_ZONE", "TIMESTAMP_WITH_LOCAL_TIME_ZONE"), _timestamp),
}
