"""Offsets files and registered lake snapshots."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol.api_keys import ApiKey
from fluss.server.coordinator.lake.offsets_files import UNUSED_FILE_AGE_MS
from tests.support.harness.coordinator import CoordinatorHarness
from tools.servers.messages import create_partition, path, table_document, text_column

Make = Callable[..., CoordinatorHarness]
LAKE = {"table.datalake.enabled": "true"}
PARTITIONED = table_document(
    [text_column("dt"), text_column("v")], partition_key=["dt"], bucket_count=2, properties=LAKE
)


@pytest.fixture
def coordinator(make_coordinator: Make) -> CoordinatorHarness:
    coordinator = make_coordinator()
    coordinator.create_table("t", table_document(bucket_count=3, properties=LAKE))
    coordinator.written_logs()
    return coordinator


Offsets = dict[int | tuple[int, int], int]


def prepare(
    coordinator: CoordinatorHarness, offsets: Offsets, *, name: str = "t", table_id: int = 0, ignore: bool = False
) -> Any:
    request = pb.PrepareLakeTableSnapshotRequest(ignore_previous_table_offsets=ignore)
    table = request.bucket_offsets.add(table_id=table_id, table_path=path(name))
    for bucket, offset in offsets.items():
        partition_id, bucket_id = bucket if isinstance(bucket, tuple) else (None, bucket)
        table.bucket_offsets.add(partition_id=partition_id, bucket_id=bucket_id, log_end_offset=offset)
    (answer,) = coordinator.call(ApiKey.PREPARE_LAKE_TABLE_SNAPSHOT, request).prepare_lake_table_resp
    return answer


def prepared(coordinator: CoordinatorHarness, offsets: Offsets, **more: Any) -> str:
    answer = prepare(coordinator, offsets, **more)
    assert not answer.HasField("error_code"), answer.error_message
    return str(answer.lake_table_offsets_path)


def commit(
    coordinator: CoordinatorHarness,
    snapshot_id: int,
    file: str,
    *,
    table_id: int = 0,
    earliest: int | None = None,
    readable: str | None = None,
) -> tuple[int | None, str]:
    request = pb.CommitLakeTableSnapshotRequest()
    request.lake_table_snapshot_metadata.add(
        table_id=table_id,
        snapshot_id=snapshot_id,
        tiered_bucket_offsets_file_path=file,
        readable_bucket_offsets_file_path=readable,
        earliest_snapshot_id_to_keep=earliest,
    )
    (answer,) = coordinator.call(ApiKey.COMMIT_LAKE_TABLE_SNAPSHOT, request).table_resp
    assert answer.table_id == table_id
    return (answer.error_code if answer.HasField("error_code") else None), answer.error_message


def get(coordinator: CoordinatorHarness, name: str = "t", **more: Any) -> tuple[int, Offsets]:
    answer = coordinator.call(ApiKey.GET_LAKE_SNAPSHOT, pb.GetLakeSnapshotRequest(table_path=path(name), **more))
    on_tablet = coordinator.call(
        ApiKey.GET_LAKE_SNAPSHOT, pb.GetLakeSnapshotRequest(table_path=path(name), **more), tablet=True
    )
    assert answer == on_tablet
    offsets: Offsets = {
        (each.partition_id, each.bucket_id) if each.HasField("partition_id") else each.bucket_id: each.log_offset
        for each in answer.bucket_snapshots
    }
    return answer.snapshotId, offsets


def has_none(coordinator: CoordinatorHarness, **more: Any) -> str:
    return coordinator.refuses(53, ApiKey.GET_LAKE_SNAPSHOT, pb.GetLakeSnapshotRequest(table_path=path("t"), **more))


def test_the_file_is_the_document_of_apache_fluss(coordinator: CoordinatorHarness) -> None:
    file = prepared(coordinator, {0: 120, 2: 77})
    root = coordinator.config.remote_data_dir
    assert file.startswith(f"{root}/lake/fluss/t-0/metadata/")
    assert file.endswith(".offsets")
    assert Path(file).read_text() == '{"version":1,"table_id":0,"bucket_offsets":[120,-1,77]}'
    empty = prepared(coordinator, {})
    assert Path(empty).read_text() == '{"version":1,"table_id":0}'


def test_offsets_of_partitions(coordinator: CoordinatorHarness) -> None:
    coordinator.create_table("p", PARTITIONED)
    for value in ("a", "b"):
        coordinator.call(ApiKey.CREATE_PARTITION, create_partition("p", dt=value))
    coordinator.written_logs()
    file = prepared(coordinator, {(1, 0): 5, (0, 1): 8}, name="p", table_id=1)
    assert Path(file).read_text() == (
        '{"version":1,"table_id":1,"partition_offsets":'
        '[{"partition_id":0,"bucket_offsets":[-1,8]},{"partition_id":1,"bucket_offsets":[5]}]}'
    )
    assert commit(coordinator, 11, file, table_id=1) == (None, "")
    assert get(coordinator, "p") == (11, {(0, 1): 8, (1, 0): 5})


def test_a_round_from_prepare_to_get(coordinator: CoordinatorHarness) -> None:
    assert "has no lake snapshot yet" in has_none(coordinator)
    file = prepared(coordinator, {0: 10, 1: 20})
    has_none(coordinator)
    assert commit(coordinator, 7, file, readable=file) == (None, "")
    assert get(coordinator) == get(coordinator, readable=True) == get(coordinator, snapshot_id=7)
    assert get(coordinator) == (7, {0: 10, 1: 20})
    assert "lake snapshot 8" in has_none(coordinator, snapshot_id=8)
    both = pb.GetLakeSnapshotRequest(table_path=path("t"), snapshot_id=7, readable=True)
    coordinator.refuses(-1, ApiKey.GET_LAKE_SNAPSHOT, both)
    coordinator.refuses(7, ApiKey.GET_LAKE_SNAPSHOT, pb.GetLakeSnapshotRequest(table_path=path("nowhere")))


def test_buckets_that_are_not_named_keep_their_offsets(coordinator: CoordinatorHarness) -> None:
    commit(coordinator, 1, prepared(coordinator, {0: 10, 1: 20}))
    file = prepared(coordinator, {1: 25, 2: 5})
    assert Path(file).read_text() == '{"version":1,"table_id":0,"bucket_offsets":[10,25,5]}'
    alone = prepared(coordinator, {1: 25}, ignore=True)
    assert Path(alone).read_text() == '{"version":1,"table_id":0,"bucket_offsets":[-1,25]}'


def test_which_snapshots_are_kept(coordinator: CoordinatorHarness) -> None:
    files = {number: prepared(coordinator, {0: number}, ignore=True) for number in range(1, 7)}
    commit(coordinator, 1, files[1])
    commit(coordinator, 2, files[2])
    has_none(coordinator, snapshot_id=1)
    assert not Path(files[1]).exists()
    commit(coordinator, 3, files[3], earliest=-1)
    commit(coordinator, 4, files[4], earliest=99)
    assert [get(coordinator, snapshot_id=number)[1] for number in (2, 3, 4)] == [{0: 2}, {0: 3}, {0: 4}]
    commit(coordinator, 5, files[5], earliest=3)
    has_none(coordinator, snapshot_id=2)
    assert get(coordinator, snapshot_id=3) == (3, {0: 3})
    assert get(coordinator) == (5, {0: 5})
    assert [Path(files[number]).exists() for number in range(1, 7)] == [False, False, True, True, True, True]


def test_the_newest_readable_snapshot_may_be_an_older_one(coordinator: CoordinatorHarness) -> None:
    first, second = (prepared(coordinator, {0: number}) for number in (3, 5))
    commit(coordinator, 1, first, readable=first)
    commit(coordinator, 2, second, earliest=-1)
    assert get(coordinator) == (2, {0: 5})
    assert get(coordinator, readable=True) == (1, {0: 3})


def test_doing_it_twice_changes_nothing(coordinator: CoordinatorHarness) -> None:
    file = prepared(coordinator, {0: 10})
    for _ in range(2):
        assert commit(coordinator, 1, file) == (None, "")
        assert Path(file).exists()
    assert get(coordinator) == (1, {0: 10})


def test_a_snapshot_that_is_behind_is_refused(coordinator: CoordinatorHarness) -> None:
    """Readers would start at offsets whose log may be removed."""
    old, new, more = (prepared(coordinator, {0: number}) for number in (10, 20, 30))
    commit(coordinator, 1, old)
    commit(coordinator, 2, new, earliest=1)
    assert commit(coordinator, 1, old) == (None, ""), "the late repetition of a call that had succeeded"
    assert get(coordinator) == (2, {0: 20})
    commit(coordinator, 3, more)
    assert commit(coordinator, 2, new)[0] == -1, "its file went with it"
    code, text = commit(coordinator, 2, prepared(coordinator, {0: 20}, ignore=True))
    assert (code, "behind the newest" in text) == (50, True)
    assert get(coordinator) == (3, {0: 30})


def test_a_commit_of_maintenance_has_the_same_offsets(coordinator: CoordinatorHarness) -> None:
    commit(coordinator, 1, prepared(coordinator, {0: 10}))
    assert commit(coordinator, 2, prepared(coordinator, {})) == (None, "")
    assert get(coordinator) == (2, {0: 10})


def test_files_of_other_tables_are_refused(coordinator: CoordinatorHarness, tmp_path: Path) -> None:
    coordinator.create_table("u", table_document(properties=LAKE))
    coordinator.written_logs()
    mine = Path(prepared(coordinator, {0: 10}))
    outside = tmp_path / "x.offsets"
    outside.write_text('{"version":1,"table_id":0,"bucket_offsets":[1]}')
    of_other_table = prepared(coordinator, {0: 1}, name="u", table_id=1)
    around = f"{mine.parent}/../../../../../{outside.name}"
    for file in (str(outside), of_other_table, around, f"{mine.parent}/missing.offsets"):
        code, text = commit(coordinator, 1, file)
        assert (code, "prepare the snapshot again" in text) == (-1, True)
    damaged = mine.parent / "damaged.offsets"
    damaged.write_text("{")
    assert commit(coordinator, 1, str(damaged))[0] == -1
    foreign = mine.parent / "foreign.offsets"
    foreign.write_text('{"version":1,"table_id":1,"bucket_offsets":[1]}')
    assert "is for table id 1" in commit(coordinator, 1, str(foreign))[1]
    has_none(coordinator)
    assert outside.exists()


def test_missing_tables_and_buckets(coordinator: CoordinatorHarness) -> None:
    assert prepare(coordinator, {}, table_id=5).error_code == 7
    assert prepare(coordinator, {}, name="other").error_code == 7
    assert prepare(coordinator, {3: 1}).error_code == -1
    assert prepare(coordinator, {(0, 0): 1}).error_code == -1
    assert commit(coordinator, 1, "x", table_id=5)[0] == 7


def legacy(coordinator: CoordinatorHarness, table_id: int, offset: int) -> tuple[int | None, str]:
    request = pb.CommitLakeTableSnapshotRequest()
    request.tables_req.add(table_id=table_id, snapshot_id=1).buckets_req.add(bucket_id=0, log_end_offset=offset)
    (answer,) = coordinator.call(ApiKey.COMMIT_LAKE_TABLE_SNAPSHOT, request).table_resp
    return (answer.error_code if answer.HasField("error_code") else None), answer.error_message


def test_offsets_beyond_the_end_of_the_log_are_refused(coordinator: CoordinatorHarness) -> None:
    """Rows that are appended later would count as tiered, and would be deleted."""
    answer = prepare(coordinator, {0: 10, 1: 1001})
    assert answer.error_code == 19
    assert "bucket 1 is beyond the end of its log, 1000" in answer.error_message
    file = Path(prepared(coordinator, {0: 1000}))
    file.write_text(file.read_text().replace("1000", "1001"))
    assert commit(coordinator, 1, str(file))[0] == 19
    assert legacy(coordinator, 0, 1001)[0] == 19
    assert coordinator.catalog.store.lake.offsets(0) == {}
    assert legacy(coordinator, 0, 1000) == (None, "")


def test_a_table_without_a_lake_accepts_no_snapshot(coordinator: CoordinatorHarness) -> None:
    coordinator.create_table("plain", table_document())
    coordinator.written_logs()
    answer = prepare(coordinator, {0: 5}, name="plain", table_id=1)
    assert answer.error_code == 40
    assert "table fluss.plain has no lake" in answer.error_message
    assert legacy(coordinator, 1, 5)[0] == 40
    assert not list(Path(coordinator.config.remote_data_dir).rglob("*.offsets"))


def test_the_form_before_0_9(coordinator: CoordinatorHarness) -> None:
    request = pb.CommitLakeTableSnapshotRequest()
    table = request.tables_req.add(table_id=0, snapshot_id=1)
    table.buckets_req.add(bucket_id=0, log_end_offset=4, max_timestamp=1000)
    (answer,) = coordinator.call(ApiKey.COMMIT_LAKE_TABLE_SNAPSHOT, request).table_resp
    assert (answer.table_id, answer.HasField("error_code")) == (0, False)
    assert get(coordinator) == get(coordinator, readable=True) == (1, {0: 4})
    by_path = pb.CommitLakeTableSnapshotRequest()
    table = by_path.tables_req.add(snapshot_id=2, table_path=path("t"))
    table.buckets_req.add(bucket_id=1, log_end_offset=6)
    coordinator.call(ApiKey.COMMIT_LAKE_TABLE_SNAPSHOT, by_path)
    assert get(coordinator) == (2, {0: 4, 1: 6})
    missing = pb.CommitLakeTableSnapshotRequest()
    missing.tables_req.add(table_id=9, snapshot_id=1)
    (answer,) = coordinator.call(ApiKey.COMMIT_LAKE_TABLE_SNAPSHOT, missing).table_resp
    assert (answer.table_id, answer.error_code) == (9, 7)


def test_times_of_rows_are_for_metrics(coordinator: CoordinatorHarness) -> None:
    request = pb.CommitLakeTableSnapshotRequest()
    request.lake_table_snapshot_metadata.add(
        table_id=0, snapshot_id=1, tiered_bucket_offsets_file_path=prepared(coordinator, {0: 4, 1: 9})
    )
    table = request.tables_req.add(table_id=0, snapshot_id=1)
    table.buckets_req.add(bucket_id=0, log_end_offset=99, max_timestamp=1000)
    table.buckets_req.add(bucket_id=1, log_end_offset=99, max_timestamp=3000)
    coordinator.call(ApiKey.COMMIT_LAKE_TABLE_SNAPSHOT, request)
    assert get(coordinator) == (1, {0: 4, 1: 9}), "offsets come from the file alone"
    (values,) = coordinator.service.lake_tiering.metrics().tables.values()
    assert values["tieredTimestamp"] == 3000


def test_files_of_dead_rounds_are_removed_when_they_are_old(coordinator: CoordinatorHarness) -> None:
    """Only files that the catalog knows are removed: it may be older than a file that it does not know."""
    dead, used = (Path(prepared(coordinator, {0: number})) for number in (1, 3))
    unknown = dead.with_name("unknown.offsets")
    unknown.write_bytes(dead.read_bytes())
    past = (coordinator.now_ms - UNUSED_FILE_AGE_MS - 1) / 1000
    os.utime(unknown, (past, past))
    coordinator.now_ms += UNUSED_FILE_AGE_MS + 1
    young = Path(prepared(coordinator, {0: 2}))
    commit(coordinator, 1, str(used))
    assert [file.exists() for file in (dead, young, used, unknown)] == [False, True, True, True]
    assert coordinator.catalog.store.lake.prepared_before(0, coordinator.now_ms + 1) == [str(young)]


def test_a_dropped_database_removes_all_offsets_files(coordinator: CoordinatorHarness) -> None:
    coordinator.call(ApiKey.CREATE_DATABASE, pb.CreateDatabaseRequest(database_name="shop", ignore_if_exists=False))
    document = table_document(properties=LAKE)
    coordinator.create_table("t", document, database="shop")
    coordinator.written_logs()
    request = pb.CommitLakeTableSnapshotRequest()
    request.tables_req.add(table_id=1, snapshot_id=1).buckets_req.add(bucket_id=0, log_end_offset=4)
    coordinator.call(ApiKey.COMMIT_LAKE_TABLE_SNAPSHOT, request)
    directory = Path(coordinator.config.remote_data_dir, "lake", "shop")
    assert list(directory.rglob("*.offsets"))
    drop = pb.DropDatabaseRequest(database_name="shop", ignore_if_not_exists=False, cascade=True)
    coordinator.call(ApiKey.DROP_DATABASE, drop)
    assert not directory.exists()


def test_a_dropped_table_removes_its_snapshots(coordinator: CoordinatorHarness) -> None:
    file = Path(prepared(coordinator, {0: 10}))
    commit(coordinator, 1, str(file))
    coordinator.call(ApiKey.DROP_TABLE, pb.DropTableRequest(table_path=path("t"), ignore_if_not_exists=False))
    assert coordinator.catalog.store.lake.snapshots(0) == []
    assert not file.exists()
    assert not file.parents[1].exists()
    assert commit(coordinator, 2, str(file))[0] == 7
