"""`log.validate: full`: values that their columns cannot hold are refused with column and row."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import fluss
from fluss.codec.arrow.compression import Compression, CompressionKind
from fluss.codec.batches.log_batch import CorruptBatch, encode_header, read_header
from fluss.codec.batches.value_faults import check_values
from fluss.codec.crc import crc32c
from fluss.codec.rows.columns import RowFormat
from fluss.errors import ErrorCode, FlussError
from fluss.protocol import staged_api_pb2 as staged_pb
from fluss.protocol.api_keys import ApiKey
from tests.support.servers.log_cluster import LogCluster
from tests.support.values import invalid_batches

# The rows of INDEXED and COMPACTED are told by their type alone.
NO_TEXT = "STRING holds bytes that are not UTF-8"
CHECKSUM = slice(21, 25)
REASONS = {
    "at": "column 'at', row 2: time32",
    "name": "column 'name', row 2: Invalid UTF8",
    "price": "column 'price', row 2: Decimal value 10000000000 does not fit",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LogCluster]:
    with LogCluster(tmp_path_factory.mktemp("server"), log_validate="full") as cluster:
        yield cluster


@pytest.fixture(scope="module")
def db(cluster: LogCluster) -> Iterator[fluss.Database]:
    with fluss.connect(cluster.cluster.bootstrap_servers) as db:
        yield db


@pytest.mark.parametrize("compression", [CompressionKind.NONE, CompressionKind.ZSTD])
@pytest.mark.parametrize("bad", invalid_batches.BAD_COLUMNS)
def test_bad_values_are_refused_by_name(
    cluster: LogCluster, db: fluss.Database, bad: str, compression: CompressionKind
) -> None:
    name = f"t_{bad}_{compression.name.lower()}"
    db.create_table(name, invalid_batches.SCHEMA, bucket_count=1)
    table, how = cluster.table_id(name), Compression(compression)
    refused = cluster.tablet.produce(table, 0, invalid_batches.batch([1, 2, 3], bad, compression=how))
    assert refused.error_code == ErrorCode.CORRUPT_RECORD_EXCEPTION
    assert f"fluss.{name}" in refused.error_message
    assert REASONS[bad] in refused.error_message
    assert cluster.latest(table) == 0
    assert not cluster.tablet.produce(table, 0, invalid_batches.batch([1, 2, 3], compression=how)).HasField(
        "error_code"
    )
    assert db.scan(name)["id"].to_pylist() == [1, 2, 3]


@pytest.mark.parametrize("log_format", ["ARROW", "INDEXED"])
def test_good_rows_of_every_format_pass(db: fluss.Database, log_format: str) -> None:
    name = f"good_{log_format.lower()}"
    db.create_table(name, invalid_batches.SCHEMA, properties={"table.log.format": log_format}, bucket_count=1)
    db.append(name, pa.Table.from_batches([invalid_batches.rows([1, 2])]))
    assert db.scan(name).to_batches() == [invalid_batches.rows([1, 2])]


@pytest.mark.parametrize("log_format", ["INDEXED", "COMPACTED"])
def test_bad_values_in_rows_are_refused(cluster: LogCluster, db: fluss.Database, log_format: str) -> None:
    name = f"rows_{log_format.lower()}"
    db.create_table(name, invalid_batches.SCHEMA, properties={"table.log.format": log_format}, bucket_count=1)
    table = cluster.table_id(name)
    refused = cluster.tablet.produce(table, 0, invalid_batches.batch_stored_as(log_format, [1, 2, 3], "name"))
    assert refused.error_code == ErrorCode.CORRUPT_RECORD_EXCEPTION
    assert f"a batch for fluss.{name} is not readable and was not stored: " in refused.error_message
    assert NO_TEXT in refused.error_message
    cut = bytearray(invalid_batches.batch_stored_as(log_format, [1, 2, 3]))
    at = read_header(cut).records_start
    cut[at : at + 4] = (1 << 20).to_bytes(4, "little")  # the first record claims a megabyte
    refused = cluster.tablet.produce(table, 0, with_checksum(cut))
    assert refused.error_code == ErrorCode.CORRUPT_RECORD_EXCEPTION, "its checksum is right, its records are none"
    assert cluster.latest(table) == 0
    good = cluster.tablet.produce(table, 0, invalid_batches.batch_stored_as(log_format, [1, 2, 3]))
    assert not good.HasField("error_code"), good.error_message
    assert db.scan(name)["name"].to_pylist() == ["name 1", "name 2", "name 3"]


@pytest.mark.parametrize(
    ("log_format", "bad"),
    [
        *(("NONE", bad) for bad in invalid_batches.BAD_COLUMNS),
        ("ZSTD", "price"),
        ("INDEXED", "name"),
        ("COMPACTED", "name"),
    ],
)
def test_staged_batches_are_checked_too(cluster: LogCluster, db: fluss.Database, log_format: str, bad: str) -> None:
    """They are refused before they are on disk: a commit could no longer refuse them."""
    name = f"staged_{log_format.lower()}_{bad}"
    is_rows = log_format in RowFormat.__members__
    db.create_table(
        name, invalid_batches.SCHEMA, properties={"table.log.format": log_format} if is_rows else {}, bucket_count=1
    )
    writer = 7
    for column in (bad, None):
        batch = as_written_by(writer, invalid_batches.batch_stored_as(log_format, [1, 2, 3], column))
        request = staged_pb.StageLogRequest(
            acks=-1, table_id=cluster.table_id(name), timeout_ms=30_000, transaction="query", batch_id=0,
            writer_id=writer,
        )  # fmt: skip
        request.buckets_req.add(bucket_id=0, records=batch)
        (answer,) = cluster.tablet.call(ApiKey.STAGE_LOG, request).buckets_resp
        if column is None:
            assert not answer.error_code, answer.error_message
        else:
            assert answer.error_code == ErrorCode.CORRUPT_RECORD_EXCEPTION
            assert f"fluss.{name} is not readable and was not stored: " in answer.error_message
            assert (NO_TEXT if is_rows else REASONS[bad]) in answer.error_message


def as_written_by(writer: int, batch: bytes) -> bytes:
    """The first batch of a writer."""
    header = read_header(batch)._replace(writer_id=writer, batch_sequence=0)
    return with_checksum(bytearray(encode_header(header) + batch[header.header_size :]))


def with_checksum(batch: bytearray) -> bytes:
    """The batch with the checksum of what it has now."""
    batch[CHECKSUM] = crc32c(batch, CHECKSUM.stop).to_bytes(4, "little")
    return bytes(batch)


def test_headers_are_the_default(tmp_path_factory: pytest.TempPathFactory) -> None:
    with LogCluster(tmp_path_factory.mktemp("server")) as cluster:
        with fluss.connect(cluster.cluster.bootstrap_servers) as db:
            db.create_table("t", invalid_batches.SCHEMA, bucket_count=1)
        table = cluster.table_id("t")
        assert not cluster.tablet.produce(table, 0, invalid_batches.batch([1], "at")).HasField("error_code")
        assert cluster.latest(table) == 1


@pytest.mark.parametrize("row", [0, 1, 499, 999])
def test_the_first_bad_row_is_found(row: int) -> None:
    column = pa.array([0] * row + [invalid_batches.DAY_MS] + [0] * (999 - row), pa.int32()).view(pa.time32("ms"))
    good = pa.array(range(1000), pa.int64())
    with pytest.raises(CorruptBatch, match=rf"^column 'at', row {row}: time32"):
        check_values(pa.RecordBatch.from_arrays([good, column], ["id", "at"]))


def test_values_inside_of_others_are_found_by_column() -> None:
    inner = pa.array([0, invalid_batches.DAY_MS], pa.int32()).view(pa.time32("ms"))
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), inner)
    with pytest.raises(CorruptBatch, match=r"^column 'times'.*86400000 is not within"):
        check_values(pa.RecordBatch.from_arrays([lists], ["times"]))


def test_a_value_that_is_null_may_be_anything() -> None:
    raw = pa.Array.from_buffers(
        pa.time32("ms"), 1, [pa.py_buffer(b"\0"), pa.py_buffer(invalid_batches.DAY_MS.to_bytes(4, "little"))]
    )
    check_values(pa.RecordBatch.from_arrays([raw], ["at"]))


def test_other_values_of_the_option_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FlussError, match=r"log\.validate"):
        fluss.embedded(tmp_path, config={"log.validate": "some"})
