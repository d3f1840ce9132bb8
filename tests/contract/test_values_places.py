"""A value for which there is no partition or bucket is refused alone, at its own call, like every other bad value."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

import fluss
from fluss import ErrorCode, FlussError
from tests.support.servers.targets import Target

TYPES = fluss.DataTypes
ICEBERG, HUDI = {"table.datalake.format": "iceberg"}, {"table.datalake.format": "hudi"}
NO_PARTITION = "such a partition cannot exist: its value must have 1 to "
NO_KEY = "a primary key must have at least one byte"
NO_BUCKET = "a bucket key must not be empty"


class Case(NamedTuple):
    """A table of the columns id, v and w, one good value of v, a bad one, and the reason."""

    data_type: Any
    good: Any
    bad: Any
    reason: str
    key: list[str]
    partitions: Sequence[str] = ()
    bucket_keys: list[str] | None = None
    buckets: int = 1
    properties: dict[str, str] | None = None


BOTH = ["id", "v"]
CASES = {
    "partition": Case(TYPES.string(), "eu", "a b", NO_PARTITION, BOTH, ["v"]),
    "no character": Case(TYPES.string(), "eu", "", NO_PARTITION, BOTH, ["v"]),
    "many characters": Case(TYPES.char(300), "eu", "x" * 201, NO_PARTITION, BOTH, ["v"]),
    "no byte": Case(TYPES.bytes(), b"eu", b"", NO_PARTITION, BOTH, ["v"]),
    "many bytes": Case(TYPES.binary(101), None, bytes(101), NO_PARTITION, BOTH, ["v"]),
    "Iceberg": Case(TYPES.string(), "x", "", NO_KEY, ["v"], [], ["v"], 1, ICEBERG),
    "Iceberg buckets": Case(TYPES.string(), "x", "", NO_KEY, ["v"], [], ["v"], 3, ICEBERG),
    "Iceberg bytes": Case(TYPES.bytes(), b"x", b"", NO_KEY, ["v"], [], ["v"], 3, ICEBERG),
    "Hudi": Case(TYPES.string(), "x", "a,b", "Hudi", BOTH, [], BOTH, 3, HUDI),
    "Hudi word": Case(TYPES.string(), "x", "__null__", "Hudi", BOTH, [], BOTH, 3, HUDI),
}
LOGS = [name for name in CASES if name != "Iceberg"]  # without hash, an empty string has a bucket


@pytest.fixture
def db(target: Target) -> Iterator[fluss.Database]:
    with fluss.connect(target.bootstrap_servers) as db:
        yield db


def create(db: fluss.Database, name: str, case: Case, is_keyed: bool) -> Any:
    schema = fluss.Schema.builder().column("id", TYPES.int()).column("v", case.data_type).column("w", TYPES.int())
    descriptor = fluss.TableDescriptor(
        (schema.primary_key(*case.key) if is_keyed else schema).build(),
        bucket_count=case.buckets,
        bucket_keys=case.bucket_keys,
        partition_keys=list(case.partitions),
        properties={**(case.properties or {}), "table.log.arrow.compression.type": "NONE"},
    )
    db.create_table(name, descriptor)
    if case.partitions and case.good is not None:
        db.create_partition(name, {"v": case.good.hex() if isinstance(case.good, bytes) else str(case.good)})
    return db._open(name)


def refused(case: Case, call: Any, *arguments: Any) -> str:
    with pytest.raises(FlussError) as caught:
        call(*arguments)
    message = caught.value.message
    assert f"column 'v' expects {case.data_type}" in message.replace(" NOT NULL", "")
    assert f"got {case.bad!r}"[:40] in message
    assert " first" in message or ": write " in message, message
    if case.partitions:
        assert caught.value.error_code == ErrorCode.PARTITION_SPEC_INVALID_EXCEPTION
    return message


@pytest.mark.parametrize("name", LOGS)
def test_the_rows_beside_an_append_are_written(db: fluss.Database, table_name: str, name: str) -> None:
    case = CASES[name]
    reason = NO_BUCKET if case.reason == NO_KEY else case.reason
    with create(db, table_name, case, is_keyed=False).new_append().create_writer() as writer:
        good = [] if case.good is None else list(range(100))
        for number in good:
            writer.append((number, case.good, 0))
            assert reason in refused(case, writer.append, {"id": 100 + number, "v": case.bad, "w": 0})
        assert reason in refused(case, writer.append, (-1, case.bad, 0))
        rows = pa.table({"id": pa.array([7, 8], pa.int32()), "v": [case.good, case.bad]})
        for call, given in (
            (writer.write_arrow, rows),
            (writer.write_arrow_batch, rows.to_batches()[0]),
            (writer.write_pandas, rows.to_pandas()),
        ):
            if case.good is not None:
                assert "in row 1" in refused(case, call, given)
        writer.flush().result()
    assert sorted(db.to_arrow(table_name)["id"].to_pylist()) == good


@pytest.mark.parametrize("name", CASES)
def test_the_rows_beside_an_upsert_or_delete_are_written(db: fluss.Database, table_name: str, name: str) -> None:
    case = CASES[name]
    table = create(db, table_name, case, is_keyed=True)
    partial = table.new_upsert(columns=case.key).create_writer()
    with table.new_upsert().create_writer() as writer:
        good = [] if case.good is None else list(range(50))
        for number in good:
            value = case.good if "id" in case.key else case.good * (number + 1)
            writer.upsert((number, value, 0))
            assert case.reason in refused(case, writer.upsert, (100, case.bad, 0))
            assert case.reason in refused(case, writer.delete, [{"id": 100, "v": case.bad}[name] for name in case.key])
        row = {name: {"id": 100, "v": case.bad}[name] for name in case.key}
        assert case.reason in refused(case, writer.upsert, {"w": 1, "id": 100, **row})
        assert case.reason in refused(case, writer.delete, row)
        assert case.reason in refused(case, partial.upsert, row)
        if not case.partitions:  # of a partition that cannot exist, nothing is found
            assert case.reason in refused(case, db.lookup, table_name, row)
            assert case.reason in refused(case, db.lookup_many, table_name, pa.table({k: [v] for k, v in row.items()}))
        if case.good is not None:
            rows = pa.table({"id": pa.array([7, 8], pa.int32()), "v": [case.good, case.bad]})
            assert "in row 1" in refused(case, writer.upsert_arrow, rows)
            assert "in row 1" in refused(case, writer.upsert_pandas, rows.to_pandas())
            assert "in row 1" in refused(case, writer.delete_arrow, rows.select(case.key))
            batch = rows.append_column("w", pa.array([1, 2], pa.int32())).to_batches()[0]
            assert "in row 1" in refused(case, writer.change_arrow, batch, pa.array([False, True]))
        writer.flush().result()
    partial.close()
    assert sorted(db.to_arrow(table_name)["id"].to_pylist()) == good


def test_an_iterable_is_written_up_to_the_bad_row(db: fluss.Database, table_name: str) -> None:
    create(db, table_name, CASES["partition"], is_keyed=False)
    rows = [(number, "eu" if number != 20 else "a b", 0) for number in range(40)]
    with pytest.raises(FlussError, match="column 'v' expects STRING, got 'a b'"):
        db.append(table_name, rows)
    assert sorted(db.to_arrow(table_name)["id"].to_pylist()) == list(range(20))


DAYS = pa.array([0, 2_000_000_000], pa.date32())
FAR = "such a partition cannot exist: it is outside the years 1 to 9999"


@pytest.mark.parametrize("is_keyed", [False, True], ids=["log", "keys"])
@pytest.mark.parametrize(
    ("data_type", "values", "partition", "properties", "reason"),
    [
        (TYPES.date(), DAYS, "1970-01-01", {}, FAR),
        (TYPES.timestamp(6), pa.array([0, 2**60], pa.timestamp("us")), "1970-01-01-00-00-00_", {}, FAR),
        (TYPES.timestamp_ltz(3), pa.array([0, -(2**60)], pa.timestamp("ms", "UTC")), "1970-01-01-00-00-00_", {}, FAR),
        (TYPES.timestamp(3), pa.array([0, 2**60], pa.timestamp("ms")), None, ICEBERG, "too far from 1970"),
        (TYPES.timestamp(3), pa.array([0, 2**60], pa.timestamp("ms")), None, HUDI, "outside the years 1 to 9999"),
        (TYPES.timestamp(0), pa.array([0, 2**60], pa.timestamp("s")), None, {}, "range|too far from 1970"),
    ],
    ids=["day", "moment", "instant", "Iceberg", "Hudi", "seconds"],
)
def test_a_time_for_which_there_is_no_place_is_named(
    db: fluss.Database,
    table_name: str,
    data_type: Any,
    values: Any,
    partition: str | None,
    properties: dict[str, str],
    reason: str,
    is_keyed: bool,
) -> None:
    """Python has no such times, Arrow does; the call itself is refused, however few rows it has."""
    places: Any = (["v"], ["v"], ["v"]) if partition is None else (BOTH, ["v"], None)
    case = Case(data_type, partition, None, "", places[0], [] if partition is None else ["v"], places[2], 3, properties)
    table = create(db, table_name, case, is_keyed=is_keyed)
    rows = pa.table({"id": pa.array([7, 8], pa.int32()), "v": values})
    with table.new_upsert().create_writer() if is_keyed else table.new_append().create_writer() as writer:
        for given in (rows, pa.concat_tables([rows.slice(0, 1), rows.slice(1)])):
            with pytest.raises(FlussError, match=rf"column 'v' expects .* in row 1.*({reason}).*: .* first"):
                writer.write_arrow(given)
        writer.write_arrow(rows.slice(0, 1))
    assert db.to_arrow(table_name).select(["id", "v"]).to_pylist() == rows.slice(0, 1).to_pylist()
