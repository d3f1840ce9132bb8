"""Remote segments in an object store: uploads, answers with addresses, a store that is away for a while, drops."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.peers.object_store import ObjectStore
from tests.support.servers.log_cluster import LogCluster, arrow_batch, ids_of
from tools.waiting import wait_until

ROOT = "s3://bucket/fluss"


@pytest.fixture
def store() -> Iterator[ObjectStore]:
    with ObjectStore() as store:
        yield store


@pytest.fixture
def cluster(store: ObjectStore, tmp_path: Path) -> Iterator[LogCluster]:
    options: dict[str, Any] = {
        "remote.data.dir": ROOT,
        "s3.endpoint": store.endpoint,
        "s3.region": "eu-west-1",
        "s3.access-key": "key",
        "s3.secret-key": "secret",
    }
    with LogCluster(
        tmp_path / "server",
        log_segment_file_size=4096,
        remote_log_task_interval_ms=20,
        remote_data_dir=ROOT,
        values=options,
    ) as cluster:
        yield cluster


def segments(store: ObjectStore) -> list[str]:
    return sorted(name for name in store.objects if name.endswith(".log"))


def fill(cluster: LogCluster, table: int, batches: int) -> None:
    for number in range(batches):
        records = arrow_batch(range(number * 10, number * 10 + 10), padding=90)
        assert not cluster.tablet.produce(table, 0, records).HasField("error_code")


def local_segments(cluster: LogCluster) -> int:
    # os.walk takes no offence at directories that go away meanwhile.
    return sum(name.endswith(".log") for _, _, names in os.walk(cluster.directory / "data") for name in names)


def test_segments_go_to_the_store_and_clients_get_their_address(cluster: LogCluster, store: ObjectStore) -> None:
    table = cluster.create_table("t")
    fill(cluster, table, 20)
    wait_until(lambda: local_segments(cluster) == 2, "two local segments left")
    info = cluster.tablet.fetch(table, 0, 0).remote_log_fetch_info
    directory = f"{ROOT}/log/fluss/t-{table}/0"
    assert info.remote_log_tablet_dir == directory
    ids: list[int] = []
    for segment in info.remote_log_segments:
        name = f"{directory}/{segment.remote_log_segment_id}/{segment.remote_log_start_offset:020d}.log"
        ids += ids_of(store.objects[name.removeprefix("s3://")])
    ids += ids_of(cluster.tablet.fetch(table, 0, len(ids)).records)
    assert ids[:50] == list(range(50))
    cluster.drop_table("t")
    wait_until(lambda: not segments(store), "a dropped table leaves the store")
    wait_until(lambda: local_segments(cluster) == 0, "and the disk")


def test_a_store_that_is_away_costs_only_disk_space(
    cluster: LogCluster, store: ObjectStore, caplog: pytest.LogCaptureFixture
) -> None:
    store.is_down = True
    table = cluster.create_table("t")
    fill(cluster, table, 20)
    wait_until(lambda: "will be retried" in caplog.text, "the failure is reported")
    assert caplog.text.count("remote log of bucket 0") == 1
    assert not segments(store)
    assert ids_of(cluster.tablet.fetch(table, 0, 0).records)
    store.is_down = False
    wait_until(lambda: local_segments(cluster) == 2, "uploads go on when the store is back")
    assert cluster.tablet.fetch(table, 0, 0).HasField("remote_log_fetch_info")


def test_a_drop_while_the_store_is_away_is_finished_later(cluster: LogCluster, store: ObjectStore) -> None:
    table = cluster.create_table("t")
    fill(cluster, table, 20)
    wait_until(lambda: local_segments(cluster) == 2, "two local segments left")
    store.is_down = True
    cluster.drop_table("t")
    assert cluster.tablet.fetch(table, 0, 0).error_code == 21
    cluster.stop()
    assert segments(store)
    store.is_down = False
    cluster.start()
    wait_until(lambda: not segments(store), "the search for left-over files deletes the objects")
    wait_until(lambda: local_segments(cluster) == 0, "and the directory")
