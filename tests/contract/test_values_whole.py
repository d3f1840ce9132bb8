"""A refused bulk write has written nothing, also when what is wrong shows only where rows become requests."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import fluss
from fluss import ErrorCode, FlussError
from tests.support.servers.targets import Target
from tools.waiting import wait_until

TYPES = fluss.DataTypes
ICEBERG = {"table.datalake.format": "iceberg"}
FAR = pa.array([2_000_000_000], pa.date32())


@pytest.fixture
def db(target: Target) -> Iterator[fluss.Database]:
    # Chunks of one kilobyte, and rows that are too large at 20.
    options = {"writer.batch-size": "1kb", "writer.request-max-size": "20kb"}
    with fluss.connect(target.config(**options)) as db:
        yield db


def ids(count: int, start: int = 0) -> Any:
    return pa.array(range(start, start + count), pa.int32())


# Keys, partition keys and buckets, properties, good and bad values of column `v`, what is said.
CASES: dict[str, tuple[list[str], list[str], int, dict[str, str], Any, Any, str]] = {
    "partition": (["id", "v"], ["v"], 1, {}, ["eu"], pa.array(["a b"]), "'a b' .* cannot exist"),
    "date": (["id", "v"], ["v"], 1, {}, [datetime.date(2026, 1, 1)], FAR, "outside the years 1 to 9999"),
    "key": (["v"], [], 2, ICEBERG, ["x"], pa.array([""]), "must not be (an )?empty"),
    "size": (["id"], [], 1, {}, ["x"], pa.array([b"\0\xff\7".hex() * 5000]), "writer.request-max-size allows"),
}


@pytest.mark.parametrize("is_keyed", [False, True], ids=["log", "keys"])
@pytest.mark.parametrize("case", CASES)
def test_a_bad_last_chunk_is_refused_before_the_first_one_leaves(
    db: fluss.Database, table_name: str, case: str, is_keyed: bool
) -> None:
    key, partitions, buckets, properties, good_value, bad_values, words = CASES[case]
    schema = fluss.Schema.builder().column("id", TYPES.int())
    schema = schema.column("v", TYPES.date() if case == "date" else TYPES.string())
    descriptor = fluss.TableDescriptor(
        (schema.primary_key(*key) if is_keyed else schema).build(),
        bucket_count=buckets,
        bucket_keys=["v"] if properties else None,
        partition_keys=partitions,
        properties={**properties, "table.log.arrow.compression.type": "NONE"},
    )
    db.create_table(table_name, descriptor)
    if partitions:
        db.create_partition(table_name, {"v": str(good_value[0])})
    good = pa.table({"id": ids(1000), "v": pa.array(good_value * 1000)})
    bad = pa.table({"id": ids(1, 1000), "v": bad_values})
    rows = pa.concat_tables([good, bad])
    whole = rows.combine_chunks()
    table = db._open(table_name)
    with table.new_upsert().create_writer() if is_keyed else table.new_append().create_writer() as writer:
        for call in (
            lambda: writer.write_arrow(rows),
            lambda: writer.write_arrow(whole),
            lambda: writer.write_arrow_batch(whole.to_batches()[0]),
            lambda: writer.write_pandas(rows.to_pandas()) if case != "date" else writer.write_arrow(rows),
        ):
            with pytest.raises(FlussError, match=words):
                call()
    assert db.to_arrow(table_name).num_rows == 0
    with table.new_upsert().create_writer() if is_keyed else table.new_append().create_writer() as writer:
        writer.write_arrow(good)
    assert db.to_arrow(table_name).num_rows == (1 if key == ["v"] and is_keyed else 1000)


def test_a_key_of_no_bytes_is_refused_by_every_call(db: fluss.Database, table_name: str) -> None:
    """With one bucket no hash is made of it, so it was the server that refused it, when other chunks were written."""
    schema = fluss.Schema.builder().column("k", TYPES.string()).column("v", TYPES.int()).primary_key("k").build()
    properties = {**ICEBERG, "table.log.arrow.compression.type": "NONE"}
    db.create_table(table_name, fluss.TableDescriptor(schema, bucket_count=1, properties=properties))
    keys = pa.table({"k": pa.chunked_array([[f"key {number}" for number in range(1000)], [""]])})
    rows = keys.append_column("v", ids(1001))
    for call in (
        lambda: db.upsert(table_name, rows),
        lambda: db.upsert(table_name, rows.to_pandas()),
        lambda: db.upsert(table_name, [("", 1)]),
        lambda: db.delete(table_name, keys),
        lambda: db.delete(table_name, [("",)]),
        lambda: db.lookup(table_name, ""),
        lambda: db.lookup_many(table_name, ["", "key 1"]),
        lambda: db.lookup_many(table_name, keys),
    ):
        with pytest.raises(FlussError, match="a primary key must have at least one byte"):
            call()
    assert db.to_arrow(table_name).num_rows == 0
    db.upsert(table_name, rows.slice(0, 1000))
    assert db.to_arrow(table_name).num_rows == 1000


@pytest.mark.parametrize("is_keyed", [False, True], ids=["log", "keys"])
def test_rows_of_partitions_that_exist_are_written_beside_others(
    db: fluss.Database, table_name: str, is_keyed: bool
) -> None:
    """Only the server knows which partitions there are; docs/values.md says that such a call may be written in part."""
    schema = fluss.Schema.builder().column("id", TYPES.int()).column("v", TYPES.string())
    built = (schema.primary_key("id", "v") if is_keyed else schema).build()
    db.create_table(table_name, fluss.TableDescriptor(built, bucket_count=1, partition_keys=["v"]))
    db.create_partition(table_name, {"v": "eu"})
    rows = pa.table({"id": ids(3000), "v": ["eu", "us", "eu"] * 1000})
    for given in (rows, rows.to_pandas(), rows.slice(0, 3).to_pylist()):
        with pytest.raises(FlussError, match="no partition 'us'; create it before writing to it") as caught:
            (db.upsert if is_keyed else db.append)(table_name, given)
        assert caught.value.error_code == ErrorCode.PARTITION_NOT_EXISTS
    db.create_partition(table_name, {"v": "us"})
    wanted = rows.filter(pc.equal(rows["v"], "eu"))["id"].to_pylist()

    def written() -> list[int]:
        found: list[int] = sorted(set(db.to_arrow(table_name)["id"].to_pylist()))
        return found

    wait_until(lambda: written() == wanted, "the rows of the other partition", seen=written)
    (db.upsert if is_keyed else db.append)(table_name, rows)
    assert written() == list(range(3000))
