"""Batches that reach Spark's Java as the server stores them: the values are those that Arrow reads."""

from __future__ import annotations

import datetime
import random
from collections.abc import Iterator
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession
from pyspark.sql.datasource import GreaterThan
from pyspark.sql.pandas.functions import pandas_udf
from pyspark.sql.types import DecimalType, LongType, StringType, StructField, StructType

import fluss
from tests.spark.conftest import Tables, setting
from tests.support.runner.lanes import rounds
from tests.support.spark.local_reads import STORED_COLUMN, Place, plan_stored

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("tiny", pa.int8()),
        ("short", pa.int16()),
        ("whole", pa.int32()),
        ("real", pa.float64()),
        ("short_real", pa.float32()),
        ("flag", pa.bool_()),
        ("name", pa.string()),
        ("bytes", pa.binary()),
        ("day", pa.date32()),
        ("moment", pa.timestamp("us")),
        ("instant", pa.timestamp("us", "UTC")),
        ("price", pa.decimal128(10, 2)),
        ("sum", pa.decimal128(38, 5)),
    ]
)
ROWS = 10_000
EPOCH = datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999)
BROKEN = "a batch of table db.t is broken"


def row(number: int) -> dict[str, Any]:
    values: dict[str, Any] = {
        "id": number,
        "tiny": number % 256 - 128,
        "short": number * 7 % 65_536 - 32_768,
        "whole": -number * 1_000,
        "real": number / 3,
        "short_real": number / 4,
        "flag": number % 3 == 0,
        "name": f"ä{number}" * (number % 20),
        "bytes": bytes([number % 256]) * (number % 9),
        "day": datetime.date(1969, 1, 1) + datetime.timedelta(days=number),
        "moment": EPOCH + datetime.timedelta(seconds=number),
        "instant": (EPOCH - datetime.timedelta(microseconds=number)).replace(tzinfo=datetime.UTC),
        "price": Decimal(number - 5_000) / 100,
        "sum": Decimal((number - 5_000) * 10**28) / 100_000,
    }
    # every column has its own pattern of nulls, except for the key
    return {name: None if at and number % (at + 2) == 0 else value for at, (name, value) in enumerate(values.items())}


TABLE = pa.Table.from_pylist([row(number) for number in range(ROWS)], SCHEMA)
COMPRESSIONS = ("ZSTD", *(pytest.param(kind, marks=pytest.mark.all) for kind in ("NONE", "LZ4_FRAME")))


def compressed(kind: str) -> dict[str, str]:
    return {"table.log.arrow.compression.type": kind}


@pytest.fixture(scope="module", params=COMPRESSIONS)
def filled(request: pytest.FixtureRequest, module_tables: Tables) -> tuple[Tables, str]:
    """A table of one bucket with all rows."""
    name = request.param.lower()
    module_tables.create(name, SCHEMA, bucket_count=1, properties=compressed(request.param))
    append(module_tables.db, module_tables.path(name))
    return module_tables, name


def append(db: fluss.Database, path: str) -> None:
    """Append all rows, in batches of many sizes, one of them too small to be passed on as stored."""
    for start, stop in pairwise((0, 20, 3_000, 3_500, 8_000, ROWS)):
        db.append(path, TABLE.slice(start, stop - start))


def messages_of(reading: Any) -> int:
    """The number of batches that are messages of the server."""
    return sum(batch.column(STORED_COLUMN).null_count == 0 for batch in reading.batches())


def test_every_type(filled: tuple[Tables, str]) -> None:
    tables, name = filled
    assert tables.read(name).toArrow().cast(SCHEMA).sort_by("id").equals(TABLE)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("spark.sql.codegen.wholeStage", "false"),
        ("spark.sql.execution.arrow.useLargeVarTypes", "true"),
        ("spark.sql.execution.arrow.compression.codec", "zstd"),
    ],
)
def test_other_settings(filled: tuple[Tables, str], key: str, value: str) -> None:
    tables, name = filled
    with setting(tables.spark, key, value):
        assert tables.read(name).toArrow().cast(SCHEMA).sort_by("id").equals(TABLE)


@pytest.mark.parametrize("columns", [["id", "tiny"], ["flag", "name", "price"], ["bytes"], ["sum", "day"]])
def test_some_columns(filled: tuple[Tables, str], columns: list[str]) -> None:
    """The server projects the columns."""
    tables, name = filled
    found = tables.read(name).select(*columns).toArrow().cast(pa.schema([SCHEMA.field(each) for each in columns]))
    assert found.num_rows == ROWS
    assert sorted(found.to_pylist(), key=repr) == sorted(TABLE.select(columns).to_pylist(), key=repr)


@pytest.mark.parametrize(("start", "stop"), [(0, 1), (1, ROWS), (17, 9_001), (5_000, 5_003), (ROWS - 1, ROWS)])
def test_ranges_that_cut_batches(filled: tuple[Tables, str], start: int, stop: int) -> None:
    tables, name = filled
    options = {"start": f'{{"0": {start}}}', "end": f'{{"0": {stop}}}'}
    found = tables.read(name, options).toArrow().cast(SCHEMA).sort_by("id")
    assert found.equals(TABLE.slice(start, stop - start))


def test_filters_limits_and_joins(filled: tuple[Tables, str]) -> None:
    """Python applies some filters and the limit; rows that a join keeps outlive their batch."""
    tables, name = filled
    frame = tables.read(name)
    assert frame.where("id >= 9990 AND flag").count() == sum(
        bool(each["flag"]) for each in TABLE.slice(9_990).to_pylist()
    )
    assert tables.read(name, {"limit": 1_234}).toArrow().cast(SCHEMA).equals(TABLE.slice(0, 1_234))
    pairs = frame.select("id", "name").join(tables.read(name).select("id", "sum"), "id")
    assert pairs.toArrow().sort_by("id").equals(TABLE.select(["id", "name", "sum"]))


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_pandas_functions(tables: Tables, compression: str) -> None:
    """For them Spark would keep batches, as if they were Arrow's own, beyond the next one."""
    rows = TABLE.select(["flag", "id", "name"])
    tables.create("t", rows.schema, bucket_count=1, properties=compressed(compression))
    for start, stop in pairwise((0, 20, *range(1_000, ROWS + 1, 1_000))):
        tables.db.append(tables.path("t"), rows.slice(start, stop - start))
    twice = pandas_udf(lambda numbers: numbers * 2, LongType())  # type: ignore[call-overload]
    expected = rows.append_column("twice", pa.array(range(0, 2 * ROWS, 2), pa.int64()))
    for start in (0, 120, 2_500):
        asked = tables.read("t", {"start": f'{{"0": {start}}}'}).withColumn("twice", twice("id"))
        assert asked.toArrow().sort_by("id").equals(expected.slice(start))


def test_a_column_with_the_name_of_ours(tables: Tables) -> None:
    schema = pa.schema([("id", pa.int64()), (STORED_COLUMN, pa.string())])
    rows = pa.table({"id": range(3_000), STORED_COLUMN: [f"text {number}" for number in range(3_000)]}, schema)
    tables.create("t", schema, bucket_count=1)
    tables.db.append(tables.path("t"), rows)
    assert tables.read("t").toArrow().sort_by("id").equals(rows)


def test_added_columns(tables: Tables) -> None:
    """Older batches lack the column, so Python decodes them; newer ones are passed on as stored."""
    tables.create("t", SCHEMA.remove(13), bucket_count=1)
    tables.db.append(tables.path("t"), TABLE.drop_columns(["sum"]).slice(0, 5_000))
    tables.db.alter_table(tables.path("t"), add_columns={"sum": SCHEMA.field("sum").type})
    tables.db.append(tables.path("t"), TABLE.slice(5_000))
    found = tables.read("t").toArrow().cast(SCHEMA).sort_by("id")
    nulls = pa.nulls(5_000, SCHEMA.field("sum").type)
    assert found.slice(5_000).equals(TABLE.slice(5_000))
    assert found.slice(0, 5_000).equals(TABLE.slice(0, 5_000).set_column(13, SCHEMA.field("sum"), nulls))


def test_which_batches_are_passed_on_as_stored(place: Place) -> None:
    """On both servers: large ones of flat columns in Spark's units, if their rows need no changes."""
    path = place.create("t", SCHEMA, bucket_count=1)
    append(place.db, path)
    assert messages_of(plan_stored(place.target, path)) == 4
    assert messages_of(plan_stored(place.target, path, columns="name,bytes,sum")) >= 1
    assert messages_of(plan_stored(place.target, path, end='{"0": 8500}')) == 3
    assert messages_of(plan_stored(place.target, path, filters=[GreaterThan(("id",), 5)])) == 0
    assert messages_of(plan_stored(place.target, path, limit=5_000)) == 0
    assert messages_of(plan_stored(place.target, path, end='{"0": 5}')) == 0
    slow = place.create("lz4", SCHEMA, bucket_count=1, properties=compressed("LZ4_FRAME"))
    place.db.append(slow, TABLE)
    assert messages_of(plan_stored(place.target, slow)) == 0
    nested = pa.schema([("id", pa.int64()), ("names", pa.list_(pa.string()))])
    lists = place.create("lists", nested, bucket_count=1)
    place.db.append(lists, [{"id": number, "names": [str(number)] * 9} for number in range(ROWS)])
    assert messages_of(plan_stored(place.target, lists)) == 0
    coarse = place.create("coarse", pa.schema([("moment", pa.timestamp("ms"))]), bucket_count=1)
    place.db.append(coarse, TABLE.select(["moment"]).cast(pa.schema([("moment", pa.timestamp("ms"))]), safe=False))
    assert messages_of(plan_stored(place.target, coarse)) == 0
    few = place.create("few", SCHEMA, bucket_count=1)
    place.db.append(few, TABLE.slice(0, 20))
    assert messages_of(plan_stored(place.target, few)) == 0


# ---- broken messages ----


class Decoder:
    """The Java class, given one message at a time."""

    def __init__(self, spark: SparkSession, schema: StructType) -> None:
        jvm: Any = spark._jvm
        columns = jvm.org.apache.spark.sql.types.DataType.fromJson(schema.json())
        self._batches = jvm.flusspy.spark.StoredBatches("db.t", columns)
        allocator = jvm.org.apache.spark.sql.util.ArrowUtils.rootAllocator()
        self._messages = jvm.org.apache.arrow.vector.VarBinaryVector("messages", allocator)
        self._messages.allocateNew()

    def read(self, message: bytes) -> Any:
        self._messages.setSafe(0, message)
        self._messages.setValueCount(1)
        return self._batches.read(self._messages)

    def rows(self, message: bytes) -> list[tuple[Any, Any]]:
        batch = self.read(message)
        ids, names = batch.column(0), batch.column(1)
        return [
            (ids.getLong(at), None if names.isNullAt(at) else names.getUTF8String(at).toString())
            for at in range(batch.numRows())
        ]

    def look_at_all(self, message: bytes) -> None:
        batch = self.read(message)
        for at in range(batch.numRows()):
            batch.getRow(at).copy()

    def close(self) -> None:
        self._batches.close()
        self._messages.close()


@pytest.fixture
def decoder(spark: SparkSession) -> Iterator[Decoder]:
    made = Decoder(spark, StructType([StructField("id", LongType(), False), StructField("name", StringType())]))
    yield made
    made.close()


def message(codec: str | None = None, names: Any = ("one", None, "", "vier")) -> bytes:
    """A message as Arrow C++ writes it."""
    arrays = [pa.array(range(len(names)), pa.int64()), pa.array(names, pa.string())]
    batch = pa.RecordBatch.from_arrays(arrays, names=["id", "name"])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as stream:
        stream.write_batch(batch)
    _, rows = pa.ipc.MessageReader.open_stream(sink.getvalue())
    return bytes(rows.serialize())


@pytest.mark.parametrize("codec", [None, "zstd"])
def test_messages_of_another_writer(decoder: Decoder, codec: str | None) -> None:
    """Short messages reuse the memory of earlier long ones."""
    names = [f"{number}" * 50 for number in range(500)]
    for each in (("one", None, "", "vier"), names, ("last",)):
        assert decoder.rows(message(codec, each)) == list(enumerate(each))


def test_messages_that_do_not_fit_the_table(decoder: Decoder, spark: SparkSession) -> None:
    whole = message()
    for broken in (b"", whole[:7], whole[:100], whole[:-8], bytes(8) + whole[8:], b"\xff" * 64, message("lz4")):
        with pytest.raises(Py4JJavaError):
            decoder.read(broken)
    with pytest.raises(Py4JJavaError, match=f"{BROKEN}: its compression is not zstd"):
        decoder.read(message("lz4"))
    other = Decoder(spark, StructType([StructField("id", LongType())]))
    with pytest.raises(Py4JJavaError, match=f"{BROKEN}: it has 2 columns and 5 buffers, not 1 and 2"):
        other.read(whole)
    other.close()
    strict = Decoder(spark, StructType([StructField("id", LongType()), StructField("name", StringType(), False)]))
    with pytest.raises(Py4JJavaError, match=r"column 'name' of table db\.t is NOT NULL, but 1 of 4 values are null"):
        strict.read(whole)
    strict.close()


@pytest.mark.parametrize("codec", [None, "zstd"])
def test_flipped_bytes_never_read_outside_of_a_message(decoder: Decoder, codec: str | None) -> None:
    """Any message gives an error that names the table, or readable rows; otherwise Java would crash."""
    chosen = random.Random(7)
    whole = message(codec, [f"name {number}" * 9 for number in range(12)])
    refused = 0
    tries = rounds(gate=60, all_lanes=300)
    for _ in range(tries):
        changed = bytearray(whole)
        for _ in range(chosen.choice((1, 1, 2, 8))):
            changed[chosen.randrange(len(changed))] = chosen.choice((0, 1, 0x7F, 0x80, 0xFF))
        try:
            decoder.look_at_all(bytes(changed))
        except Py4JJavaError as error:
            text = str(error.java_exception.getMessage())
            if not text.startswith((BROKEN, "column 'id' of table db.t is NOT NULL")):
                raise
            refused += 1
    assert tries // 15 < refused < tries


@pytest.mark.parametrize(
    ("stored", "fits"),
    [("99999999.99", True), ("-99999999.99", True), ("100000000.00", False), ("-100000000000000000000.00", False)],
)
def test_decimals_that_do_not_fit(spark: SparkSession, stored: str, fits: bool) -> None:
    """Decimals that were written with more digits than the column has."""
    column = StructType([StructField("price", DecimalType(10, 2))])
    batch = pa.RecordBatch.from_arrays([pa.array([Decimal(stored)], pa.decimal128(38, 2))], names=["price"])
    decoder = Decoder(spark, column)
    value = decoder.read(bytes(batch.serialize())).column(0)
    if fits:
        assert value.getDecimal(0, 10, 2).toString() == stored
    else:
        with pytest.raises(Py4JJavaError, match=r"a value of the table does not fit its type, DecimalType\(10,2\)"):
            value.getDecimal(0, 10, 2)
    decoder.close()
