"""`log.validate: full`: values that their columns cannot hold are refused with column and row."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import fluss
from fluss.codec.compression import Compression, CompressionKind
from fluss.codec.log_batch import CorruptBatch
from fluss.codec.value_faults import check_values
from fluss.errors import ErrorCode, FlussError
from tests.support import bad_values
from tests.support.log_cluster import LogCluster

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
@pytest.mark.parametrize("bad", bad_values.BAD_COLUMNS)
def test_bad_values_are_refused_by_name(
    cluster: LogCluster, db: fluss.Database, bad: str, compression: CompressionKind
) -> None:
    name = f"t_{bad}_{compression.name.lower()}"
    db.create_table(name, bad_values.SCHEMA, bucket_count=1)
    table, how = cluster.table_id(name), Compression(compression)
    refused = cluster.tablet.produce(table, 0, bad_values.batch([1, 2, 3], bad, compression=how))
    assert refused.error_code == ErrorCode.CORRUPT_RECORD_EXCEPTION
    assert f"fluss.{name}" in refused.error_message
    assert REASONS[bad] in refused.error_message
    assert cluster.latest(table) == 0
    assert not cluster.tablet.produce(table, 0, bad_values.batch([1, 2, 3], compression=how)).HasField("error_code")
    assert db.scan(name)["id"].to_pylist() == [1, 2, 3]


@pytest.mark.parametrize("log_format", ["ARROW", "INDEXED"])
def test_good_rows_of_every_format_pass(db: fluss.Database, log_format: str) -> None:
    name = f"good_{log_format.lower()}"
    db.create_table(name, bad_values.SCHEMA, properties={"table.log.format": log_format}, bucket_count=1)
    db.append(name, pa.Table.from_batches([bad_values.rows([1, 2])]))
    assert db.scan(name).to_batches() == [bad_values.rows([1, 2])]


def test_headers_are_the_default(tmp_path_factory: pytest.TempPathFactory) -> None:
    with LogCluster(tmp_path_factory.mktemp("server")) as cluster:
        with fluss.connect(cluster.cluster.bootstrap_servers) as db:
            db.create_table("t", bad_values.SCHEMA, bucket_count=1)
        table = cluster.table_id("t")
        assert not cluster.tablet.produce(table, 0, bad_values.batch([1], "at")).HasField("error_code")
        assert cluster.latest(table) == 1


@pytest.mark.parametrize("row", [0, 1, 499, 999])
def test_the_first_bad_row_is_found(row: int) -> None:
    column = pa.array([0] * row + [bad_values.DAY_MS] + [0] * (999 - row), pa.int32()).view(pa.time32("ms"))
    good = pa.array(range(1000), pa.int64())
    with pytest.raises(CorruptBatch, match=rf"^column 'at', row {row}: time32"):
        check_values(pa.RecordBatch.from_arrays([good, column], ["id", "at"]))


def test_values_inside_of_others_are_found_by_column() -> None:
    inner = pa.array([0, bad_values.DAY_MS], pa.int32()).view(pa.time32("ms"))
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), inner)
    with pytest.raises(CorruptBatch, match=r"^column 'times'.*86400000 is not within"):
        check_values(pa.RecordBatch.from_arrays([lists], ["times"]))


def test_a_value_that_is_null_may_be_anything() -> None:
    raw = pa.Array.from_buffers(
        pa.time32("ms"), 1, [pa.py_buffer(b"\0"), pa.py_buffer(bad_values.DAY_MS.to_bytes(4, "little"))]
    )
    check_values(pa.RecordBatch.from_arrays([raw], ["at"]))


def test_other_values_of_the_option_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FlussError, match=r"log\.validate"):
        fluss.embedded(tmp_path, config={"log.validate": "some"})
