"""`kill -9` while snapshots are taken, registered, deleted and restored, under writers.

Snapshots are due all the time and kills happen at random moments. Every other time a store is removed while the server
is down, so that the next start restores it, and is often killed during that. `FLUSS_KILL_ROUNDS` sets the number of
rounds of all kill tests; this one does a fifth of them.
"""

from __future__ import annotations

import random
import shutil
import sqlite3
import time
from pathlib import Path

from fluss.codec.batches.kv_values import ValueReader
from fluss.codec.rows.columns import RowFormat
from fluss.server.storage.kv_snapshot import CompletedSnapshot, snapshot_from_json
from tests.support.runner.lanes import rounds, seed
from tests.support.storage.snapshot_files import needed_files, remote_files, snapshot_items
from tests.support.tables.kv_workload import (
    KEY_DISTANCE,
    SCHEMA,
    KvWriter,
    Rows,
    check_changelog,
    check_writer,
    create_table,
    rows_after,
)
from tests.support.tables.log_workload import CONNECTION_TIMEOUT_SECONDS, leaders
from tools.servers.server_process import ServerProcess
from tools.servers.wire_client import WireClient
from tools.waiting import wait_until

ROUNDS = rounds(gate=4, all_lanes=10, share_of_soak=0.2)
BUCKETS = 2
TABLE = "snapped"
OPTIONS = {"kv.snapshot.interval": "50ms", "log.segment.file-size": "256kb"}


def _registered(server: ServerProcess) -> list[CompletedSnapshot]:
    with sqlite3.connect(f"file:{server.data / 'catalog.sqlite'}?mode=ro", uri=True) as connection:
        rows = connection.execute("SELECT document FROM kv_snapshots ORDER BY bucket_id, snapshot_id").fetchall()
    return [snapshot_from_json(document) for (document,) in rows]


def _progress(server: ServerProcess, writers: list[KvWriter]) -> None:
    """Wait until every writer has an answer and there is a newer snapshot."""
    acknowledged = [writer.acknowledged for writer in writers]
    newest = max((snapshot.log_offset for snapshot in _registered(server)), default=0)
    wait_until(
        lambda: all(
            writer.error is not None or writer.acknowledged > known
            for writer, known in zip(writers, acknowledged, strict=True)
        ),
        "all writers to make progress after a crash",
        60.0,
    )
    wait_until(
        lambda: max((snapshot.log_offset for snapshot in _registered(server)), default=0) > newest,
        "another snapshot",
        60.0,
    )


def _lose_a_store(server: ServerProcess, generator: random.Random) -> None:
    directories = sorted(server.data.glob("data/*/*/kv-*"))
    directory = generator.choice(directories)
    shutil.rmtree(generator.choice([directory, directory / "db"]), ignore_errors=True)


def _check_snapshots(server: ServerProcess, writers: list[KvWriter], directory: Path) -> None:
    """Check all registered snapshots; the last rows may still cause a new one, which removes an old one."""
    while True:
        snapshots = _registered(server)
        try:
            return _check_each(snapshots, writers, directory)
        except FileNotFoundError:
            assert _registered(server) != snapshots, "files of a registered snapshot are missing"


def _check_each(snapshots: list[CompletedSnapshot], writers: list[KvWriter], directory: Path) -> None:
    """Check that every snapshot has the rows after some number of batches of each writer, not beyond those sent."""
    assert {snapshot.bucket.bucket_id for snapshot in snapshots} == set(range(BUCKETS))
    reader = ValueReader({1: SCHEMA}, 1, RowFormat.COMPACTED)
    for snapshot in snapshots:
        found = [tuple(reader.row(value)) for value in snapshot_items(snapshot, directory).values()]
        assert snapshot.row_count == len(found)
        for writer in writers:
            if writer.bucket == snapshot.bucket.bucket_id:
                base = writer.number * KEY_DISTANCE
                mine: Rows = {row[0]: row for row in found if base <= row[0] < base + KEY_DISTANCE}
                batches = int(mine[base][2]) if base in mine else 0
                assert batches <= writer.sent
                assert mine == rows_after(writer.number, batches), f"snapshot {snapshot.snapshot_id} of {writer.name}"


def _check_rows(server: ServerProcess, writers: list[KvWriter]) -> None:
    for bucket, (host, port) in leaders(server.address, TABLE).items():
        mine = [writer for writer in writers if writer.bucket == bucket]
        with WireClient(host, port, CONNECTION_TIMEOUT_SECONDS) as client:
            for writer in mine:
                check_writer(client, writer)
            check_changelog(client, writers[0].table_id, bucket, mine)


def test_kills_while_snapshots_come_and_go(tmp_path: Path) -> None:
    generator = random.Random(seed())
    with ServerProcess(tmp_path / "data", tablets=2, config=OPTIONS) as server:
        table_id = create_table(server.address, TABLE, BUCKETS)
        writers = [KvWriter(server.address, TABLE, table_id, bucket, bucket) for bucket in range(BUCKETS)]
        for writer in writers:
            writer.start()
        for round_number in range(ROUNDS):
            _progress(server, writers)
            time.sleep(generator.uniform(0.0, 0.1))  # the crash comes at a random moment; nothing waits for it
            if round_number % 3 == 2:
                server.kill_child(generator.randrange(3))
                continue
            server.kill()
            _lose_a_store(server, generator)
            server.start()
            if round_number % 3 == 1:
                time.sleep(generator.uniform(0.0, 0.2))  # during the restore, perhaps
                server.kill()
                server.start()
        _progress(server, writers)
        for writer in writers:
            writer.stopping.set()
        for writer in writers:
            writer.finish()
        _check_rows(server, writers)
        server.kill()
        for directory in server.data.glob("data/*/*/kv-*"):
            shutil.rmtree(directory)
        server.start()
        _check_rows(server, writers)
        remote = server.data / "remote"
        wait_until(
            lambda: remote_files(remote) == needed_files(_registered(server)),
            "only the files of registered snapshots are left",
        )
        _check_snapshots(server, writers, tmp_path / "copy")
        assert "cannot open" not in server.log_text()
        assert server.log_text().count("restored snapshot") >= ROUNDS // 3
