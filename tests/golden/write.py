"""Writes golden data: `python -m tests.golden.write NAME` in a checkout of the version that is to write it.

Two runs of a real server. The first one uploads segments, takes snapshots of primary-key tables and tiers lakes, and
stops. The second one gets more rows, which are in the log alone, and is killed: stores are behind their changelogs, and
of three staged transactions one is decided, one prepared and one only staged.

Nothing in the data may expire, since it is opened years later: tables keep their log for ever. Cursors and notes of
producers live for a year at most, so their end is moved in the catalog; that is all that was not written by the server.

A checkout that does not have this module yet gets a copy of the folder; see docs/durability.md.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

import fluss
import fluss.spark
from fluss.api.staged import StagedAppender, StagedAttempt, commit_staged
from fluss.client.two_phase.commit_calls import Commit, StagedFile
from fluss.model.paths import TableBucket
from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol.api_keys import ApiKey
from tests.golden.archives import pack, place_of
from tests.golden.contents import DATABASE, open_table, read_ends, read_records, read_rows, shown
from tests.golden.tables import (
    PLAIN,
    Golden,
    create_key_tables,
    create_lake_tables,
    create_log_tables,
    texts,
    write_rows,
)
from tools.servers.logins import TWO_LISTENERS, USERS
from tools.servers.server_process import ServerProcess
from tools.waiting import wait_until

TABLETS = 2
DEADLINE_SECONDS = 60.0
A_THOUSAND_YEARS_MS = 1000 * 366 * 24 * 3600 * 1000
SMALL_SEGMENTS = {"log.segment.file-size": "4kb", "log.index.interval-size": "256b"}
FIRST_RUN = {
    **SMALL_SEGMENTS,
    "remote.log.task-interval-duration": "100ms",
    "kv.snapshot.interval": "300ms",
}
SECOND_RUN = {
    **SMALL_SEGMENTS,
    "remote.log.task-interval-duration": "0s",
    "kv.snapshot.interval": "0s",
    "staged.append.check-interval": "1h",  # decided batches are not found before the server is killed
}


def connected(address: str) -> fluss.Database:
    """Rows without keys go to all buckets in turn."""
    return fluss.connect(address, writer_bucket_no_key_assigner="round_robin")


def first_run(data: Path) -> None:
    with ServerProcess(data, tablets=TABLETS, config=FIRST_RUN) as server, connected(server.address) as db:
        golden = Golden(db)
        db.create_database(DATABASE)
        create_log_tables(golden)
        create_key_tables(golden)
        create_lake_tables(golden)
        write_rows(golden, server.address, run=0)
        for name in ("log_evolved", "kv_evolved"):
            db.alter_table(f"{DATABASE}.{name}", add_columns={"more": fluss.DataTypes.double()})
        wait_until(lambda: rows_are_only_remote(data), "the first segments are only in remote storage", 60)
        wait_until(lambda: all_have_snapshots(data), "every table with a primary key has a snapshot", 60)


def rows_are_only_remote(data: Path) -> bool:
    local = list((data / "data" / DATABASE).glob("log_remote-*/log-*"))
    gone = [bucket for bucket in local if not (bucket / f"{0:020d}.log").exists()]
    return len(local) == len(gone) == 2


def all_have_snapshots(data: Path) -> bool:
    stores = list((data / "data" / DATABASE).glob("**/kv-*/db"))
    snapshots = {path.parents[1] for path in (data / "remote" / "kv" / DATABASE).glob("**/_METADATA")}
    return len(stores) > 0 and len(snapshots) == len(stores)


def write_permissions(data: Path) -> list[list[str]]:
    """A run of its own: a server that checks permissions lets no other user write."""
    acls = [
        fluss.Acl("User:alice", "read", f"cluster.{DATABASE}.log_zstd"),
        fluss.Acl("User:alice", "all", f"cluster.{DATABASE}.kv_plain", "127.0.0.1"),
        fluss.Acl("*", "describe", f"cluster.{DATABASE}"),
    ]
    config = {**TWO_LISTENERS, "authorizer.enabled": "true"}
    with (
        ServerProcess(data, bind=None, tablets=TABLETS, config=config) as server,
        fluss.connect(server.addresses["CLIENT"], username="admin", password=USERS["admin"]) as db,
    ):
        asyncio.run(db.connection.get_admin().create_acls(acls))
    return sorted(list(dataclasses.astuple(acl)) for acl in acls)


# ---- the second run ----


def stage(golden: Golden, transaction: str, batch_id: int, first: int) -> StagedAttempt:
    with StagedAppender(open_table(golden.db, "log_staged"), transaction, batch_id) as appender:
        appender.write_arrow_batch(pa.RecordBatch.from_pylist(texts(first, first + 10), PLAIN))
        return appender.finish(DEADLINE_SECONDS)


def write_staged(golden: Golden) -> tuple[dict[str, Any], StagedAttempt]:
    """Every state that a staged batch can be in when the server dies, but that of the one that is still to decide."""
    table = open_table(golden.db, "log_staged")
    commit_staged(table, "nightly", 0, [stage(golden, "nightly", 0, 0)])
    to_decide = stage(golden, "nightly", 1, 100)
    prepared, only_staged = stage(golden, "hourly", 0, 200), stage(golden, "daily", 0, 300)
    for attempt in (to_decide, prepared):
        go_through(table, attempt, Commit._prepare)
    staged = {
        "last_committed": {"nightly": 1, "hourly": None, "daily": None},
        "decided_rows": [list(row.values()) for row in texts(100, 110)],
        "prepared": attempt_to_json(prepared, texts(200, 210)),
        "staged": attempt_to_json(only_staged, texts(300, 310)),
    }
    return staged, to_decide


def attempt_to_json(attempt: StagedAttempt, rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {"attempt": dataclasses.asdict(attempt), "rows": [list(row.values()) for row in rows]}


def go_through(table: fluss.FlussTable, attempt: StagedAttempt, step: Callable[..., Any]) -> None:
    """One step of a commit, whose driver then dies."""
    files: dict[TableBucket, list[StagedFile]] = {}
    assert attempt.writer_id is not None
    for item in attempt.buckets:
        bucket = TableBucket(attempt.table_id, item.partition_id, item.bucket_id)
        files[bucket] = [StagedFile(bucket, attempt.writer_id, item.batch_count, item.size_bytes)]
    session = table._session
    commit = Commit(session.cluster, table._table, attempt.transaction, attempt.batch_id, DEADLINE_SECONDS)
    session.run(step(commit, files), DEADLINE_SECONDS)


def decide_and_kill(golden: Golden, server: ServerProcess, attempt: StagedAttempt) -> None:
    """The tablets are stopped before the decision, so none of them can append what is decided."""
    table = open_table(golden.db, "log_staged")
    for number in range(TABLETS):
        tablet = server.process_of(f"tablet-{number}")
        assert tablet is not None
        tablet.suspend()
    go_through(table, attempt, Commit._decide)
    server.kill()


def write_cursors(golden: Golden) -> dict[str, Any]:
    """A cursor that was moved three times, and the offsets of a producer."""
    admin = golden.db.connection.get_admin()
    path = f"{DATABASE}.log_stream"
    table_id = golden.db.info(path).table_id

    async def move() -> None:
        for place in ({0: 5, 1: 0}, {0: 7, 1: 3}, {0: 11, 1: 6}):
            await asyncio.sleep(0.01)  # moves are told apart by the time of the server
            await admin.move_cursor(path, "mailer", {fluss.TableBucket(table_id, b): at for b, at in place.items()})

    asyncio.run(move())
    request = pb.RegisterProducerOffsetsRequest(producer_id="golden-producer")
    request.table_offsets.add(table_id=table_id).bucket_offsets.add(bucket_id=1, log_end_offset=42)
    cluster = golden.db._session.cluster
    golden.db._session.run(cluster.call_coordinator(ApiKey.REGISTER_PRODUCER_OFFSETS, request))
    return {"mailer": {"0": 11, "1": 6}, "golden-producer": {"1": 42}}


def run_streams(spark: SparkSession, address: str, root: Path) -> list[Any]:
    """Two queries read what the table has now: one hands rows to Python, one copies them. Returns what they read."""
    seen: list[Any] = []

    def take(frame: DataFrame, batch_id: int) -> None:
        seen.extend([shown(value) for value in row] for row in frame.collect())

    stream = spark.readStream.format("fluss").option("bootstrap.servers", address).option("maxRowsPerTrigger", 15)
    frame = stream.load(f"{DATABASE}.log_stream")
    to_python = frame.writeStream.foreachBatch(take).option("checkpointLocation", str(root / "checkpoint"))
    to_python.trigger(availableNow=True).start().awaitTermination()
    copy = frame.writeStream.format("fluss").option("bootstrap.servers", address)
    copy = copy.option("table", f"{DATABASE}.log_copied").option("checkpointLocation", str(root / "copy-checkpoint"))
    copy.trigger(availableNow=True).start().awaitTermination()
    # As if the driver had died between the commit of its last batch and the note about it: the batch runs again.
    commits = root / "copy-checkpoint" / "commits"
    last = max(int(path.name) for path in commits.iterdir() if path.name.isdecimal())
    for path in (commits / str(last), commits / f".{last}.crc"):
        path.unlink(missing_ok=True)
    return sorted(seen, key=repr)


def second_run(data: Path, root: Path) -> dict[str, Any]:
    server = ServerProcess(data, tablets=TABLETS, config=SECOND_RUN)
    try:
        with connected(server.address) as db:
            golden = Golden(db)
            spark = fluss.spark.session("golden", "local[2]", {"spark.sql.shuffle.partitions": "2"})
            streamed = run_streams(spark, server.address, root)
            spark.stop()
            write_rows(golden, server.address, run=1)
            cursors = write_cursors(golden)
            staged, to_decide = write_staged(golden)
            tables = {name: table_contents(db, name) for name in sorted(db.tables(DATABASE))}
            decide_and_kill(golden, server, to_decide)
    finally:
        if server.process.poll() is None:
            server.kill()
    # The decided rows come with the next start.
    del tables["log_staged"]["records"], tables["log_staged"]["ends"]
    tables["log_staged"]["rows"] = sorted(tables["log_staged"]["rows"] + staged["decided_rows"], key=repr)
    return {"cursors": cursors, "staged": staged, "streamed": streamed, "tables": tables}


def table_contents(db: fluss.Database, name: str) -> dict[str, Any]:
    info = db.info(f"{DATABASE}.{name}")
    contents: dict[str, Any] = {
        "rows": read_rows(db, name),
        "records": read_records(db, name),
        "ends": read_ends(db, name),
        "columns": info.get_column_names(),
        "primary_keys": info.get_primary_keys(),
    }
    if name.startswith("lake_"):
        lake = db.to_arrow(f"{DATABASE}.{name}", read_optimized=True)
        contents["lake_rows"] = lake.num_rows
        assert 0 < lake.num_rows < len(contents["records"])
    return contents


def keep_for_ever(data: Path) -> None:
    """Move the end of cursors and notes of producers far away; in which order they end stays."""
    with closing(sqlite3.connect(data / "catalog.sqlite")) as connection, connection:
        connection.execute("UPDATE producer_offsets SET expiration_time = expiration_time + ?", (A_THOUSAND_YEARS_MS,))


def check_states(data: Path) -> None:
    """What is hard to reach is there indeed."""
    assert len(list(data.rglob("*.staged"))) >= 3, "staged rows under way"
    assert list(data.rglob("*-deletes.parquet")), "rows of the lake that are hidden by position"
    with closing(sqlite3.connect(data / "catalog.sqlite")) as connection:
        (count,) = connection.execute("SELECT count(*) FROM staged_work").fetchone()
        assert count > 0, "rows that are decided and not in the log"


def main(name: str) -> None:
    with place_of(name) as root:
        data = root / "data"
        first_run(data)
        acls = write_permissions(data)
        expected = {**second_run(data, root), "acls": acls}
        check_states(data)
        keep_for_ever(data)
        for log in root.glob("*.log"):
            log.unlink()
        pack(name, root, expected)
        print(json.dumps({table: len(each["rows"]) for table, each in expected["tables"].items()}, indent=1))


if __name__ == "__main__":
    main(sys.argv[1])
