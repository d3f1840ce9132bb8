"""Options set by their names, as users do, on running servers; other tests set the fields of the configuration."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pyarrow as pa
import pytest

import fluss
from fluss.server.config.server_config import ServerConfig
from tools.servers.wire_client import WireClient
from tools.waiting import patience

ROWS = 2_000
PATIENCE_SECONDS = patience(60.0)

# Name: value, field and value of the field. All are far from their defaults, most of them too small for real use.
UNUSUAL: dict[str, tuple[str, str, object]] = {
    "tablet-server.rack": ("r7", "rack", "r7"),
    "log.flush.interval": ("5 ms", "log_flush_interval_ms", 5),
    "remote.log.task-max-upload-segments": ("1", "remote_log_task_max_upload_segments", 1),
    "server.writer-id.expiration-time": ("2 d", "writer_id_expiration_ms", 2 * 86_400_000),
    "server.writer-id.expiration-check-interval": ("1 s", "writer_id_check_interval_ms", 1_000),
    "coordinator.producer-offsets.ttl": ("1 h", "producer_offsets_ttl_ms", 3_600_000),
    "coordinator.producer-offsets.cleanup-interval": ("1 s", "producer_offsets_cleanup_interval_ms", 1_000),
    "kv.block-cache.size": ("1mb", "kv_block_cache_size", 1 << 20),
    "kv.write-buffers.size": ("4mb", "kv_write_buffers_size", 4 << 20),
    "kv.recent-rows.size": ("1mb", "kv_recent_rows_size", 1 << 20),
    "kv.snapshot.lease.expiration-check-interval": ("1 s", "kv_snapshot_lease_check_interval_ms", 1_000),
    "kv.scanner.ttl": ("1 min", "kv_scanner_ttl_ms", 60_000),
    "kv.scanner.expiration-interval": ("1 s", "kv_scanner_expiration_interval_ms", 1_000),
    "kv.scanner.max-per-server": ("2", "kv_scanner_max_per_server", 2),
    "kv.scanner.max-batch-size": ("4kb", "kv_scanner_max_batch_size", 4 << 10),
    "lake.request.timeout": ("9 s", "lake_request_timeout_ms", 9_000),
    "lake.expired-partition.max-wait": ("1 d", "lake_expired_partition_max_wait_ms", 86_400_000),
    "staged.append.expiration": ("2 h", "staged_append_expiration_ms", 7_200_000),
    "netty.server.max-request-size": ("8mb", "max_request_size", 8 << 20),
    "server.max-connections": ("40", "max_connections", 40),
    "security.acl.principal.ignore-case": ("true", "acl_ignore_case", True),
}


@pytest.mark.parametrize("name", UNUSUAL)
def test_an_option_reaches_its_field(name: str) -> None:
    text, field, expected = UNUSUAL[name]
    plain = ServerConfig.load(None, {"data.dir": "data"})
    config = ServerConfig.load(None, {"data.dir": "data", name: text})
    assert getattr(config, field) == expected
    assert getattr(plain, field) != expected


def test_a_server_with_all_options_keeps_tables_and_lists_its_options(tmp_path: Path) -> None:
    config = {name: text for name, (text, _, _) in UNUSUAL.items()}
    wide = pa.table({"id": range(ROWS), "text": [f"{number:0100d}" for number in range(ROWS)]})
    for _ in range(2):  # the second time with what the first has left
        with (
            fluss.embedded(tmp_path, config={**config, "log.flush": "interval"}) as cluster,
            fluss.connect(cluster.bootstrap_servers) as db,
        ):
            db.create_table("log", wide.schema, ignore_if_exists=True)
            db.create_table("keyed", wide.schema, primary_keys=["id"], ignore_if_exists=True)
            before = db.to_arrow("log").num_rows
            db.append("log", wide)
            db.upsert("keyed", wide)
            assert db.to_arrow("log").num_rows == before + ROWS
            # Two scanners of 4 kb at a time, many answers each.
            assert db.to_arrow("keyed").sort_by("id").to_pylist() == wide.to_pylist()
            told = asyncio.run(_told(cluster.bootstrap_servers))
            assert {name: told.get(name) for name in config} == config


async def _told(address: str) -> dict[str, str | None]:
    with await fluss.FlussConnection.create(fluss.Config({"bootstrap.servers": address})) as connection:
        return {entry.name: entry.value for entry in await connection.get_admin().describe_cluster_configs()}


def test_silent_connections_are_closed_after_the_idle_time(tmp_path: Path) -> None:
    with fluss.embedded(tmp_path, config={"netty.connection.max-idle-time": "300 ms"}) as cluster:
        host, _, port = cluster.bootstrap_servers.rpartition(":")
        with socket.create_connection((host, int(port)), PATIENCE_SECONDS) as silent:
            assert silent.recv(1) == b"", "the server closes it"
        with WireClient.connect(cluster.bootstrap_servers) as client:
            assert client.metadata().tablet_servers


def test_the_first_of_several_folders_and_the_host_of_a_tablet_server(tmp_path: Path) -> None:
    folders = {"data.dirs": f"{tmp_path}/one, {tmp_path}/two", "remote.data.dirs": f"{tmp_path}/r1,{tmp_path}/r2"}
    config = ServerConfig.load(None, {**folders, "tablet-server.host": "127.0.0.9"})
    assert str(config.data_dir) == f"{tmp_path}/one"
    assert config.remote_data_dir == f"{tmp_path}/r1"
    assert [listener.host for listener in config.listeners] == ["127.0.0.9"]
