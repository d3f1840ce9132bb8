"""Bucket functions: worked examples of the reference, and arrays against single keys."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fluss.codec.keys import bucketing as b
from fluss.codec.keys.encoding import KeyEncoding, encode_key
from fluss.codec.rows.values import RowValueError
from fluss.model import types as t

INT, BIGINT, STRING = t.IntType(nullable=False), t.BigIntType(nullable=False), t.StringType(nullable=False)
FOX = b"The quick brown fox jumps over the lazy dog"

# key bytes, signed hash, spread code, buckets of 3 and 16 in Java, buckets of 3 and 16 in pyfluss
FLUSS_EXAMPLES = [
    ("00", -783713497, 1599628232, 2, 8, 2, 8),
    ("01", -386724586, 1113307500, 0, 12, 0, 12),
    ("02", -976699032, 483081162, 0, 10, 0, 10),
    ("03", 156767528, 190319419, 1, 11, 1, 11),
    ("2a", 2032745034, 1447288154, 2, 10, 2, 10),
    ("7f", 1185089389, 1760172346, 1, 10, 1, 10),
    ("8001", 1712308537, 1556452018, 1, 2, 0, 7),
    ("e807", -1634726800, 118367123, 2, 3, 0, 9),
    ("ffffffff0f", 571599, 1667198730, 0, 10, 0, 10),
    ("cb89ec8ff723", -2045574075, 2112334608, 0, 0, 2, 8),
    ("ffffffffffffffffff01", -1529267776, 1621867703, 2, 7, 1, 4),
    ("026132", -1948204213, 149572014, 0, 14, 0, 14),
    ("02c3a9", 620298039, 2124593798, 2, 6, 0, 10),
    ("09e697a5e69cace8aa9e", 1998559123, 2023002684, 0, 12, 0, 3),
    ("01026132", -134630779, 513524477, 2, 13, 2, 13),
    ("e8070d" + b"a-long-string".hex(), 1679876869, 1355217634, 1, 2, 1, 2),
]
SCALARS = (b.fluss_bucket, b.paimon_bucket, b.iceberg_bucket)
VECTORS = (b.fluss_buckets, b.paimon_buckets, b.iceberg_buckets)


@pytest.mark.parametrize(("key", "hash_", "code", "of_3", "of_16", "rust_3", "rust_16"), FLUSS_EXAMPLES)
def test_fluss_examples(key: str, hash_: int, code: int, of_3: int, of_16: int, rust_3: int, rust_16: int) -> None:
    content = bytes.fromhex(key)
    assert b.fluss_hash(content) == hash_ & 0xFFFFFFFF
    assert b.fluss_spread(hash_) == code
    assert (b.fluss_bucket(content, 3), b.fluss_bucket(content, 16)) == (of_3, of_16)
    assert (b.fluss_bucket(content, 3, "pyfluss"), b.fluss_bucket(content, 16, "pyfluss")) == (rust_3, rust_16)


@pytest.mark.parametrize(
    ("key", "count", "fluss", "paimon", "iceberg"),
    [
        (bytes.fromhex("000a"), 7, 1, 1, 3),
        (bytes.fromhex("000a0a0a"), 12, 0, 11, 4),
        (b"2bb87d68-baf9-4e64-90f9-f80910419fa6", 16, 6, 12, 12),
        (FOX, 8, 6, 0, 3),
    ],
)
def test_raw_keys(key: bytes, count: int, fluss: int, paimon: int, iceberg: int) -> None:
    assert [function(key, count) for function in SCALARS] == [fluss, paimon, iceberg]
    assert [int(function(pa.array([key]), count)[0]) for function in VECTORS] == [fluss, paimon, iceberg]


def test_hash_vectors() -> None:
    assert b.fluss_hash(b"") == 0x087FCD5C
    assert b.fluss_hash(FOX) == 0x1BC6F880
    assert [b.fluss_spread(number) for number in (0, 42, -77)] == [0x2362F9DE, 0x43A46E1D, 0x2EEB27DE]
    assert b.murmur3(FOX) == 0x2E4FF723


@pytest.mark.parametrize(
    ("lake", "values", "types", "of_3", "of_16"),
    [
        ("paimon", [1], [INT], 1, 14),
        ("paimon", [128], [INT], 2, 14),
        ("paimon", ["a2"], [STRING], 1, 11),
        ("paimon", [-1], [BIGINT], 1, 0),
        ("paimon", [1, "a2"], [INT, STRING], 2, 6),
        ("iceberg", [1], [INT], 2, 4),
        ("iceberg", ["a2"], [STRING], 2, 9),
        ("iceberg", [-1], [BIGINT], 1, 8),
        ("hudi", [1], [INT], 2, 0),
        ("hudi", [1, "a2"], [INT, STRING], 2, 1),
    ],
)
def test_keys_of_lake_formats(lake: str, values: list[object], types: list[t.DataType], of_3: int, of_16: int) -> None:
    key = encode_key(values, types, KeyEncoding(lake))
    bucket, buckets = b.BUCKET_OF_LAKE_FORMAT[lake], b.BUCKETS_OF_LAKE_FORMAT[lake]
    assert (bucket(key, 3, "java"), bucket(key, 16, "java")) == (of_3, of_16)
    assert buckets(pa.array([key]), 16, "java").tolist() == [of_16]


@pytest.mark.parametrize(
    ("value", "data_type", "key", "raw_hash", "of_3", "of_16"),
    [
        (34, INT, "2200000000000000", 2017239379, 1, 3),
        (34, BIGINT, "2200000000000000", 2017239379, 1, 3),
        (1420, t.DecimalType(9, 2), "058c", -500754589, 1, 3),
        (17486, t.DateType(), "4e44000000000000", -653330422, 1, 10),
        (81068000, t.TimeType(), "008307e012000000", -662762989, 1, 3),
        ((1510871468000, 0), t.TimestampType(), "00c3262d215e0500", -2047944441, 2, 7),
        ("iceberg", STRING, "69636562657267", 1210000089, 0, 9),
        (bytes(range(4)), t.BytesType(), "00010203", -188683207, 1, 9),
    ],
)
def test_iceberg_examples(value: object, data_type: t.DataType, key: str, raw_hash: int, of_3: int, of_16: int) -> None:
    encoded = encode_key([value], [data_type], KeyEncoding.ICEBERG)
    assert encoded.hex() == key
    assert b.murmur3(encoded) == raw_hash & 0xFFFFFFFF
    assert (b.iceberg_bucket(encoded, 3), b.iceberg_bucket(encoded, 16)) == (of_3, of_16)


@given(
    st.lists(st.binary(min_size=1, max_size=40), max_size=30),
    st.integers(1, 2**31 - 1) | st.integers(1, 20),
    st.sampled_from(["java", "pyfluss"]),
    st.integers(0, 5),
)
def test_arrays_agree_with_single_keys(
    keys: list[bytes], count: int, tail: Literal["java", "pyfluss"], start: int
) -> None:
    array = pa.array(keys, pa.binary()).slice(start)
    for scalar, vector in zip(SCALARS, VECTORS, strict=True):
        buckets = vector(array, count, tail)
        assert buckets.dtype == np.int32
        assert buckets.tolist() == [scalar(key, count, tail) for key in keys[start:]]
    words = [key[:4].ljust(4, b"\0") for key in keys]
    assert b.hudi_buckets(pa.array(words, pa.binary()), count).tolist() == [b.hudi_bucket(k, count) for k in words]


def test_what_has_no_bucket_is_refused() -> None:
    for scalar, vector in zip(SCALARS, VECTORS, strict=True):
        with pytest.raises(RowValueError, match="must not be empty"):
            scalar(b"", 3)
        with pytest.raises(RowValueError, match="must not be empty"):
            vector(pa.array([b"a", b""]), 3)
        with pytest.raises(RowValueError, match="number of buckets"):
            scalar(b"a", 0)
        with pytest.raises(RowValueError, match="number of buckets"):
            vector(pa.array([b"a"]), 0)
        with pytest.raises(RowValueError, match="null"):
            vector(pa.array([b"a", None]), 3)
    with pytest.raises(RowValueError, match="4 bytes"):
        b.hudi_bucket(b"abc", 3)
    with pytest.raises(RowValueError, match="4 bytes"):
        b.hudi_buckets(pa.array([b"abc"]), 3)
