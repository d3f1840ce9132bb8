"""Snapshots of primary-key tables in an object store: taken, read by a client, restored, deleted."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fluss
from fluss.api import current_rows
from tests.support.peers.object_store import ObjectStore
from tests.support.tables.kv_tables import KvTable, user
from tools.waiting import wait_until

ROOT = "s3://bucket/fluss"


@pytest.fixture
def store() -> Iterator[ObjectStore]:
    with ObjectStore() as store:
        yield store


def _options(store: ObjectStore) -> dict[str, str]:
    return {
        "bind.listeners": "FLUSS://127.0.0.1:0",
        "remote.data.dir": ROOT,
        "kv.snapshot.interval": "50ms",
        "s3.endpoint": store.endpoint,
        "s3.region": "eu-west-1",
        "s3.access-key": "key",
        "s3.secret-key": "secret",
        "s3.client.access-key": "reader",
        "s3.client.secret-key": "reader-secret",
    }


def _connect(cluster: Any) -> fluss.FlussConnection:
    return fluss.FlussConnection.open(fluss.Config({"bootstrap.servers": cluster.bootstrap_servers}))


def _documents(store: ObjectStore) -> list[str]:
    return sorted(name for name in store.objects if name.endswith("/_METADATA"))


def test_a_table_lives_on_in_its_snapshot(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="fluss")

    async def no(*_: object) -> bool:
        return False

    rows = [user(number) for number in range(200)]
    with fluss.embedded(tmp_path / "data", config=_options(store)) as cluster, _connect(cluster) as connection:
        table = KvTable(connection, "t", bucket_count=1)
        table.write(rows)
        wait_until(lambda: _documents(store), "a snapshot in the store")
        store.is_down = True
        table.write([user(1000)])  # writers do not notice
        wait_until(lambda: "failed and will be retried" in caplog.text, "the trouble is logged")
        store.is_down = False
        wait_until(lambda: len(_documents(store)) == 2, "another snapshot")
        table.write([user(1001)])
        monkeypatch.setattr(current_rows, "_serves_scans", no)
        assert table.rows() == [*rows, user(1000), user(1001)]
    for directory in (tmp_path / "data" / "data").glob("*/*/kv-0"):
        shutil.rmtree(directory)
    caplog.clear()
    with fluss.embedded(tmp_path / "data", config=_options(store)) as cluster, _connect(cluster) as connection:
        table = KvTable.existing(connection, "t")
        assert table.look_up({"id": 3}, {"id": 1001}) == [user(3), user(1001)]
        assert "restored snapshot" in caplog.text
        table.run(lambda: table.admin.drop_table(table.path))
        wait_until(lambda: not [name for name in store.objects if "/kv/" in name], "a dropped table leaves the store")
