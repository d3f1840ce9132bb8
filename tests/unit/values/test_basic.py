"""Value classes: what they say, when they are equal, how they are made."""

from __future__ import annotations

import pickle

import pytest

import fluss
from fluss import ChangeType, FlussError, LakeSnapshot, OffsetSpec, OffsetType, TableBucket, TablePath
from fluss.model import paths
from fluss.values.basic import as_table_path, public_bucket, resolve_offset_spec


def test_change_types() -> None:
    assert [kind.name for kind in ChangeType] == ["AppendOnly", "Insert", "UpdateBefore", "UpdateAfter", "Delete"]
    assert [kind.short_string() for kind in ChangeType] == ["+A", "+I", "-U", "+U", "-D"]
    assert ChangeType(3) is ChangeType.UpdateAfter
    assert int(ChangeType.Delete) == 4
    assert (repr(ChangeType.Insert), str(ChangeType.Insert)) == ("ChangeType.Insert", "+I")


def test_table_paths() -> None:
    path = TablePath("db", "t")
    assert path == TablePath(database="db", table="t") == TablePath(database_name="db", table_name="t")
    assert path == paths.TablePath("db", "t")
    assert paths.TablePath("db", "t") == path
    assert len({path, paths.TablePath("db", "t")}) == 1
    assert path != TablePath("db", "u")
    assert (path.database_name, path.table_name, path.database, path.table) == ("db", "t", "db", "t")
    assert (str(path), repr(path), path.table_path_str()) == ("db.t", "TablePath('db', 't')", "db.t")
    assert pickle.loads(pickle.dumps(path)) == path
    assert as_table_path("db.t") == path
    for bad in ("t", "a.b.c", 5, None):
        with pytest.raises(FlussError):
            as_table_path(bad)
    with pytest.raises(FlussError, match="the table name of a table path must be"):
        TablePath("db")


def test_table_buckets() -> None:
    bucket, inner = TableBucket(7, 2), paths.TableBucket(7, None, 2)
    assert (bucket.table_id, bucket.partition_id, bucket.bucket_id) == (7, None, 2)
    assert bucket == inner == public_bucket(inner)
    assert {bucket: 1}[inner] == 1
    assert repr(bucket) == "TableBucket(table_id=7, bucket=2)"
    partitioned = TableBucket.with_partition(7, 5, 2)
    assert partitioned != bucket
    assert repr(partitioned) == str(partitioned) == "TableBucket(table_id=7, partition_id=5, bucket=2)"
    assert pickle.loads(pickle.dumps(partitioned)) == partitioned
    assert type(pickle.loads(pickle.dumps(bucket))) is TableBucket
    assert TableBucket(table_id=7, bucket=2) == bucket


def test_offset_specs() -> None:
    assert repr(OffsetSpec.earliest()) == "OffsetSpec.earliest()"
    assert repr(OffsetSpec.timestamp(5)) == "OffsetSpec.timestamp(5)"
    assert OffsetSpec.latest() == OffsetSpec.latest()
    assert len({OffsetSpec.latest(), OffsetSpec.latest(), OffsetSpec.earliest()}) == 2
    assert (fluss.EARLIEST_OFFSET, fluss.LATEST_OFFSET) == (-2, -1)
    with pytest.raises(FlussError, match=r"must be an int \(milliseconds since 1970\)"):
        OffsetSpec.timestamp("5")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((OffsetSpec.latest(), None, None), OffsetSpec.latest()),
        ((OffsetType.EARLIEST, None, None), OffsetSpec.earliest()),
        ((None, "latest", None), OffsetSpec.latest()),
        ((None, "LATEST", None), OffsetSpec.latest()),
        ((None, OffsetType.TIMESTAMP, 9), OffsetSpec.timestamp(9)),
        (("timestamp", None, 9), OffsetSpec.timestamp(9)),
    ],
)
def test_every_spelling_of_an_offset_is_understood(
    arguments: tuple[object, object, int | None], expected: OffsetSpec
) -> None:
    assert resolve_offset_spec(*arguments) == expected


@pytest.mark.parametrize(
    "arguments", [(None, None, None), ("newest", None, None), (None, "timestamp", None), (5, 5, 5)]
)
def test_offsets_that_cannot_be_meant_are_refused(arguments: tuple[object, object, int | None]) -> None:
    with pytest.raises(FlussError):
        resolve_offset_spec(*arguments)


def test_lake_snapshots() -> None:
    snapshot = LakeSnapshot(4, {paths.TableBucket(1, None, 0): 10, paths.TableBucket(1, 5, 0): 20})
    assert snapshot.get_bucket_offset(TableBucket(1, 0)) == 10
    assert snapshot.get_bucket_offset(TableBucket.with_partition(1, 5, 0)) == 20
    assert snapshot.get_bucket_offset(TableBucket(1, 9)) is None
    assert set(snapshot.get_table_buckets()) == {TableBucket(1, 0), TableBucket.with_partition(1, 5, 0)}
    assert snapshot == LakeSnapshot(4, snapshot.table_buckets_offset)
    assert snapshot != LakeSnapshot(5)
    assert repr(LakeSnapshot(4)) == "LakeSnapshot(snapshot_id=4, buckets=0)"


def test_servers_and_partitions() -> None:
    node = fluss.ServerNode(1, "h", 9, "TabletServer")
    assert node.uid == "ts-1"
    assert fluss.ServerNode(0, "h", 9, "CoordinatorServer").uid == "cs-0"
    assert node == fluss.ServerNode(1, "h", 9, "TabletServer")
    info = fluss.PartitionInfo(3, "US", fluss.PartitionSpec({"region": "US"}))
    assert (info.get_partition_id(), info.get_partition_name()) == (3, "US")
    assert info.get_partition_spec().get_spec_map() == {"region": "US"}
    assert hash(info) == hash(fluss.PartitionInfo(3, "US"))


def test_an_error_keeps_its_code_when_it_travels() -> None:
    error = pickle.loads(pickle.dumps(FlussError("gone", 7)))
    assert (error.message, error.error_code, str(error)) == ("gone", 7, "gone (error code 7)")
