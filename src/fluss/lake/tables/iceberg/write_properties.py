"""The user's properties for data files: the `write.*` properties that we support, read and checked in one place.

They are checked when a table is created or altered, because an invalid one would make every round of tiering fail.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from fluss.errors import ErrorCode, FlussError

CODECS = ("zstd", "snappy", "gzip", "lz4", "brotli", "uncompressed")
DEFAULT_TARGET_FILE_BYTES = 128 << 20
DEFAULT_COMPRESSION = "zstd"
# Columns with more distinct values than fit give up their dictionary early: trying for longer (the usual 1 MiB) takes a
# third of the writing time, and makes files hardly smaller.
DEFAULT_DICTIONARY_BYTES = 128 << 10

_TARGET_BYTES = "write.target-file-size-bytes"
_CODEC = "write.parquet.compression-codec"
_LEVEL = "write.parquet.compression-level"
_DICTIONARY_BYTES = "write.parquet.dict-size-bytes"


def target_file_bytes(properties: Mapping[str, str]) -> int:
    """The size at which a data file is closed and the next one begins."""
    return _positive(properties, _TARGET_BYTES, DEFAULT_TARGET_FILE_BYTES)


def parquet_options(properties: Mapping[str, str]) -> dict[str, object]:
    """The arguments for pyarrow's `ParquetWriter`."""
    codec = properties.get(_CODEC, DEFAULT_COMPRESSION).lower()
    if codec not in CODECS:
        raise _wrong(_CODEC, properties[_CODEC], f"one of {', '.join(CODECS)}")
    return {
        "compression": "none" if codec == "uncompressed" else codec,
        "compression_level": _level(properties, codec),
        "dictionary_pagesize_limit": _positive(properties, _DICTIONARY_BYTES, DEFAULT_DICTIONARY_BYTES),
    }


def check_write_properties(properties: Mapping[str, str]) -> None:
    """Raise if files could not be written with these properties."""
    target_file_bytes(properties)
    parquet_options(properties)


def _level(properties: Mapping[str, str], codec: str) -> int | None:
    if _LEVEL not in properties:
        return None
    level = _parsed(properties, _LEVEL, "a whole number")
    try:
        pa.Codec(codec, level)
    except (pa.ArrowException, OSError, ValueError):
        raise _wrong(_LEVEL, properties[_LEVEL], f"a level of {codec}, or left out") from None
    return level


def _positive(properties: Mapping[str, str], key: str, default: int) -> int:
    if key not in properties:
        return default
    wanted = "a number of bytes, without a unit"
    number = _parsed(properties, key, wanted)
    if number <= 0:
        raise _wrong(key, properties[key], wanted)
    return number


def _parsed(properties: Mapping[str, str], key: str, wanted: str) -> int:
    try:
        return int(properties[key])
    except ValueError:
        raise _wrong(key, properties[key], wanted) from None


def _wrong(key: str, value: str, wanted: str) -> FlussError:
    message = f"property 'iceberg.{key}' of the table must be {wanted}, got {value!r}"
    return FlussError(message, ErrorCode.INVALID_TABLE_EXCEPTION)
