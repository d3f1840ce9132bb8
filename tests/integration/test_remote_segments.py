"""Sealed segments move to remote storage, clients are sent there, and both ends are cleaned up in time."""

from __future__ import annotations

import glob
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol.api_keys import ApiKey
from tests.support.servers.log_cluster import LogCluster, arrow_batch, ids_of, path_of
from tools.waiting import wait_until

BATCH_ROWS = 10
SEGMENT_BYTES = 8 * 1024


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LogCluster]:
    with LogCluster(
        tmp_path / "server",
        log_segment_file_size=SEGMENT_BYTES,
        log_index_interval_size=512,
        remote_log_task_interval_ms=20,
        values={"remote.log.task-interval-duration": "20 ms"},
        log_retention_check_interval_ms=20,
    ) as cluster:
        yield cluster


def fill(cluster: LogCluster, table: int, batches: int) -> int:
    """Write batches of a bit more than 1 KiB; returns the end offset."""
    start = cluster.latest(table)
    for number in range(batches):
        first = start + number * BATCH_ROWS
        records = arrow_batch(range(first, first + BATCH_ROWS), padding=90)
        assert not cluster.tablet.produce(table, 0, records).HasField("error_code")
    return start + batches * BATCH_ROWS


def found(directory: Path, pattern: str) -> list[str]:
    """Matching files; unlike a Path's glob it takes directories that vanish meanwhile for empty."""
    return glob.glob(str(directory / pattern))


def remote_directory(cluster: LogCluster, name: str, table: int) -> Path:
    return cluster.directory / "remote" / "log" / "fluss" / f"{name}-{table}" / "0"


def local_segments(cluster: LogCluster, name: str, table: int) -> list[str]:
    directory = cluster.directory / "data" / "fluss" / f"{name}-{table}" / "log-0"
    return sorted(path.name for path in directory.glob("*.log"))


def read_remote(info: pb.PbRemoteLogFetchInfo) -> list[int]:
    """What a client reads: the files, by the names that it builds, the first one from `first_start_pos`."""
    ids: list[int] = []
    position = info.first_start_pos
    for segment in info.remote_log_segments:
        name = f"{segment.remote_log_segment_id}/{segment.remote_log_start_offset:020d}.log"
        content = Path(info.remote_log_tablet_dir, name).read_bytes()
        assert len(content) == segment.segment_size_in_bytes
        ids += ids_of(content[position:])
        position = 0
    return ids


def read_all(cluster: LogCluster, table: int, end: int, read_preference: int = 0) -> list[int]:
    """Read a bucket from its start as clients do."""
    seen: list[int] = []
    offset = -2
    while offset < end:
        request = pb.FetchLogRequest(follower_server_id=-1, max_bytes=1 << 20, read_preference=read_preference)
        wanted = request.tables_req.add(table_id=table, projection_pushdown_enabled=False)
        wanted.buckets_req.add(bucket_id=0, fetch_offset=offset, max_fetch_bytes=1 << 20)
        found = cluster.tablet.call(ApiKey.FETCH_LOG, request).tables_resp[0].buckets_resp[0]
        assert not found.HasField("error_code"), found.error_message
        if found.HasField("remote_log_fetch_info"):
            assert not found.HasField("records")
            rows = read_remote(found.remote_log_fetch_info)
        else:
            rows = ids_of(found.records)
        assert rows, "no progress"
        seen += [row for row in rows if row >= offset]
        offset = seen[-1] + 1
    return seen


def test_old_data_is_read_from_remote_storage(cluster: LogCluster) -> None:
    table = cluster.create_table("tiered")
    end = fill(cluster, table, 60)
    wait_until(lambda: len(local_segments(cluster, "tiered", table)) == 2, "two local segments left")
    info = cluster.tablet.fetch(table, 0, 25, min_bytes=1, max_wait_ms=10_000).remote_log_fetch_info
    assert info.remote_log_tablet_dir == str(remote_directory(cluster, "tiered", table))
    assert info.HasField("first_start_pos")
    assert info.first_start_pos > 0
    assert read_remote(info)[0] in (10, 20)
    assert cluster.earliest(table) == 0
    assert read_all(cluster, table, end) == list(range(end))
    assert read_all(cluster, table, end, read_preference=1) == list(range(end))
    assert cluster.tablet.fetch(table, 0, end + 1).error_code == 19


def test_remote_first_answers_remote_although_the_data_is_local(cluster: LogCluster) -> None:
    table = cluster.create_table("preference", {"table.log.tiered.local-segments": "100"})
    end = fill(cluster, table, 20)
    request = pb.FetchLogRequest(follower_server_id=-1, max_bytes=1 << 20, read_preference=1)
    wanted = request.tables_req.add(table_id=table, projection_pushdown_enabled=False)
    wanted.buckets_req.add(bucket_id=0, fetch_offset=0, max_fetch_bytes=1 << 20)

    def is_remote() -> bool:
        found = cluster.tablet.call(ApiKey.FETCH_LOG, request).tables_resp[0].buckets_resp[0]
        return bool(found.HasField("remote_log_fetch_info"))

    wait_until(is_remote, "a segment was uploaded")
    assert cluster.tablet.fetch(table, 0, 0).HasField("records")
    assert read_all(cluster, table, end, read_preference=1) == list(range(end))


def test_offsets_by_timestamp_reach_into_remote_segments(cluster: LogCluster) -> None:
    table = cluster.create_table("times")
    assert cluster.offsets(table, 2, 1).offset == 0
    assert cluster.offsets(table, 2, 0).offset == 0
    assert cluster.offsets(table, 2, -1).error_code == -1
    end = fill(cluster, table, 40)
    assert cluster.offsets(table, 2, 1).offset == 0
    wait_until(lambda: len(local_segments(cluster, "times", table)) == 2, "two local segments left")
    first = cluster.tablet.fetch(table, 0, 0).remote_log_fetch_info.remote_log_segments
    stamp = first[1].max_timestamp
    found = cluster.offsets(table, 2, stamp).offset
    assert found < first[1].remote_log_end_offset
    assert cluster.offsets(table, 2, 1).offset == 0
    now = int(time.time() * 1000)
    wait_until(lambda: cluster.offsets(table, 2, int(time.time() * 1000) - 1).offset == end, "newer than all")
    assert cluster.offsets(table, 2, now + 3_600_000).error_code == 38


def test_everything_survives_a_restart(cluster: LogCluster) -> None:
    table = cluster.create_table("restart")
    end = fill(cluster, table, 40)
    wait_until(lambda: len(local_segments(cluster, "restart", table)) == 2, "two local segments left")
    cluster.restart()
    assert cluster.latest(table) == end
    assert cluster.earliest(table) == 0
    assert read_all(cluster, table, end) == list(range(end))
    end = fill(cluster, table, 10)
    assert read_all(cluster, table, end) == list(range(end))


def test_a_moved_data_directory_finds_its_remote_segments(cluster: LogCluster) -> None:
    table = cluster.create_table("moved")
    end = fill(cluster, table, 30)
    wait_until(lambda: len(local_segments(cluster, "moved", table)) == 2, "two local segments left")
    cluster.stop()
    new_place = cluster.directory.parent / "elsewhere"
    cluster.directory.rename(new_place)
    cluster.directory = new_place
    cluster.start()
    assert read_all(cluster, table, end) == list(range(end))


def test_expired_segments_leave_both_ends(cluster: LogCluster) -> None:
    table = cluster.create_table("short_lived", {"table.log.ttl": "1 s"})
    end = fill(cluster, table, 40)
    wait_until(lambda: cluster.earliest(table) > end - 100, "old segments expired")
    start = cluster.earliest(table)
    assert cluster.tablet.fetch(table, 0, 0).error_code == 19
    assert ids_of(cluster.tablet.fetch(table, 0, start).records)[0] == start
    directory = remote_directory(cluster, "short_lived", table)
    wait_until(lambda: not found(directory, "*/*.log"), "remote files are gone")
    wait_until(lambda: len(found(directory, "metadata/*")) <= 1, "old manifests are gone")
    assert cluster.latest(table) == end


def test_retention_without_remote_storage(tmp_path: Path) -> None:
    with LogCluster(tmp_path, log_segment_file_size=SEGMENT_BYTES, log_retention_check_interval_ms=20) as cluster:
        table = cluster.create_table("local_only", {"table.log.ttl": "1 s"})
        forever = cluster.create_table("forever", {"table.log.ttl": "0 s"})
        end = fill(cluster, table, 40)
        fill(cluster, forever, 40)
        wait_until(lambda: cluster.earliest(table) > 0, "old segments are gone")
        wait_until(lambda: len(local_segments(cluster, "local_only", table)) == 1, "only the active one stays")
        assert cluster.tablet.fetch(table, 0, 0).error_code == 19
        assert cluster.latest(table) == end
        assert cluster.earliest(forever) == 0
        assert not (tmp_path / "remote").exists()


def test_tiering_can_be_switched_off_and_on_again(cluster: LogCluster) -> None:
    table = cluster.create_table("switched", {"table.log.ttl": "1 s"})
    fill(cluster, table, 20)
    cluster.restart(remote_log_task_interval_ms=0)
    end = fill(cluster, table, 40)
    wait_until(lambda: len(local_segments(cluster, "switched", table)) == 1, "only the active segment is left")
    directory = remote_directory(cluster, "switched", table)
    wait_until(lambda: not found(directory, "*/*.log"), "remote segments expire without tiering too")
    cluster.restart(remote_log_task_interval_ms=20, log_retention_check_interval_ms=3_600_000)
    end = fill(cluster, table, 40)
    wait_until(lambda: found(directory, "*/*.log"), "uploads go on")
    assert cluster.latest(table) == end


def test_a_dropped_table_leaves_nothing_behind(cluster: LogCluster) -> None:
    table = cluster.create_table("to_drop")
    fill(cluster, table, 40)
    remote = remote_directory(cluster, "to_drop", table)
    local = cluster.directory / "data" / "fluss" / f"to_drop-{table}"
    wait_until(lambda: found(remote, "*/*.log"), "something was uploaded")
    cluster.drop_table("to_drop")
    wait_until(lambda: not remote.parent.exists() and not local.exists(), "all files are gone")


def test_left_over_files_of_dropped_tables_do_not_block_a_start(cluster: LogCluster) -> None:
    kept = cluster.create_table("kept")
    end = fill(cluster, kept, 3)
    gone = cluster.create_table("gone")
    fill(cluster, gone, 40)
    wait_until(lambda: len(local_segments(cluster, "gone", gone)) == 2, "two local segments left")
    local = cluster.directory / "data" / "fluss" / f"gone-{gone}"
    saved = cluster.directory.parent / "saved"
    cluster.stop()
    local.rename(saved)
    cluster.start()
    cluster.drop_table("gone")
    cluster.stop()
    shutil.rmtree(local, ignore_errors=True)
    saved.rename(local)  # As if the server had died between the drop and the removal of the files.
    (cluster.directory / "data" / "fluss" / "junk").write_text("not ours")
    (cluster.directory / "data" / "not-a-table-99999").mkdir()
    cluster.start()
    assert ids_of(cluster.tablet.fetch(kept, 0, 0).records) == list(range(end))
    wait_until(lambda: not local.exists(), "left-over files are removed")
    wait_until(lambda: not remote_directory(cluster, "gone", gone).exists(), "and their remote objects")
    assert (cluster.directory / "data" / "fluss" / "junk").exists()


def test_dropped_partitions(cluster: LogCluster) -> None:
    table = cluster.create_table("parts", partition_key=["name"])
    partitions = {}
    for name in ("a", "b"):
        request = pb.CreatePartitionRequest(table_path=path_of("parts"), ignore_if_not_exists=False)
        request.partition_spec.partition_key_values.add(key="name", value=name)
        cluster.coordinator.call(ApiKey.CREATE_PARTITION, request)
    listed = pb.ListPartitionInfosRequest(table_path=path_of("parts"))
    for item in cluster.coordinator.call(ApiKey.LIST_PARTITION_INFOS, listed).partitions_info:
        partitions[item.partition_spec.partition_key_values[0].value] = item.partition_id
    for partition in partitions.values():
        assert cluster.tablet.produce(table, 0, arrow_batch([1]), partition_id=partition).base_offset == 0
    drop = pb.DropPartitionRequest(table_path=path_of("parts"), ignore_if_not_exists=False)
    drop.partition_spec.partition_key_values.add(key="name", value="a")
    cluster.coordinator.call(ApiKey.DROP_PARTITION, drop)
    assert cluster.tablet.fetch(table, 0, 0, partition_id=partitions["a"]).error_code == 21
    assert ids_of(cluster.tablet.fetch(table, 0, 0, partition_id=partitions["b"]).records) == [1]
    directory = cluster.directory / "data" / "fluss" / f"parts-{table}"
    wait_until(
        lambda: {path.name for path in directory.iterdir()} == {f"b-p{partitions['b']}", "table.json"},
        "one directory left",
    )


def test_a_broken_bucket_answers_26_and_nothing_else_suffers(cluster: LogCluster) -> None:
    table = cluster.create_table("two", bucket_count=2)
    for bucket in (0, 1):
        cluster.tablet.produce(table, bucket, arrow_batch([bucket]))
    cluster.stop()
    broken = cluster.directory / "data" / "fluss" / f"two-{table}" / "log-1"
    moved = broken.with_name("moved")
    broken.rename(moved)
    broken.write_text("a file where the bucket should be")
    cluster.start()
    assert ids_of(cluster.tablet.fetch(table, 0, 0).records) == [0]
    assert cluster.tablet.fetch(table, 1, 0).error_code == 26
    assert cluster.tablet.produce(table, 1, arrow_batch([2])).error_code == 26


@pytest.mark.parametrize("lost", ["the record", "its directory", "half of the record"])
def test_a_lost_record_is_noticed(cluster: LogCluster, lost: str) -> None:
    """Without it the older rows would be gone in silence, and the next upload would forget them for ever."""
    table = cluster.create_table("lost")
    end = fill(cluster, table, 40)
    wait_until(lambda: len(local_segments(cluster, "lost", table)) == 2, "two local segments left")
    cluster.stop()
    directory = cluster.directory / "data" / "fluss" / f"lost-{table}" / "log-0" / "remote-log"
    record = directory / "remote-log.json"
    saved = cluster.directory.parent / "saved"
    shutil.copytree(directory, saved)
    if lost == "its directory":
        shutil.rmtree(directory)
    elif lost == "the record":
        record.unlink()
    else:
        record.write_bytes(record.read_bytes()[: record.stat().st_size // 2])
    cluster.start()
    for _ in range(2):
        for answer in (cluster.tablet.fetch(table, 0, 0), cluster.tablet.produce(table, 0, arrow_batch([end]))):
            assert answer.error_code == 26
            assert str(record) in answer.error_message
        cluster.restart()
    cluster.stop()
    shutil.rmtree(directory, ignore_errors=True)
    saved.rename(directory)
    cluster.start()
    assert read_all(cluster, table, end) == list(range(end))
    assert fill(cluster, table, 1) == end + BATCH_ROWS


def test_a_crash_before_the_first_record_is_no_loss(cluster: LogCluster) -> None:
    """The directory is made before the record, and what is half written counts for nothing."""
    table = cluster.create_table("begun", {"table.log.tiered.local-segments": "100"})
    end = fill(cluster, table, 3)
    cluster.stop()
    directory = cluster.directory / "data" / "fluss" / f"begun-{table}" / "log-0" / "remote-log"
    directory.mkdir()
    (directory / "remote-log.json.tmp").write_bytes(b"{")
    cluster.start()
    assert read_all(cluster, table, end) == list(range(end))
    cluster.restart()
    assert read_all(cluster, table, end) == list(range(end))
