"""Data that earlier versions wrote is opened by this one, which finds every row and goes on from there.

Each test puts the archive back as its version left it: killed, with rows that are only in the log.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import fluss
from fluss.api.staged import StagedAttempt, StagedBucket, abort_staged, commit_staged, last_committed
from fluss.lake.tiering.rounds import RoundReport
from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol.api_keys import ApiKey
from tests.golden.archives import ARCHIVES, GAPS, Archive, restored
from tests.golden.contents import DATABASE, open_table, read_ends, read_records, read_rows, shown_rows
from tests.support.lake.tiered_tables import OPTIONS, Watching, tiering_service
from tools.servers.logins import TWO_LISTENERS, USERS
from tools.servers.server_process import ServerProcess
from tools.waiting import wait_until

NOBODY_CLEANS = {"staged.append.expiration": "36500 d"}
"""Staged rows that were under way are years old."""


@pytest.fixture(params=ARCHIVES)
def archive(request: pytest.FixtureRequest) -> Iterator[Archive]:
    with restored(request.param) as archive:
        yield archive


def connect(address: str) -> fluss.Database:
    return fluss.connect(address, request_timeout=30_000)


def opened(archive: Archive, config: Mapping[str, str] = NOBODY_CLEANS) -> Any:
    return fluss.embedded(archive.data, config=config)


def wait_for_decided_rows(db: fluss.Database) -> None:
    """A repeated commit returns when what was decided before is in the log."""
    assert not commit_staged(open_table(db, "log_staged"), "nightly", 1, [])


def keys_of(db: fluss.Database, table: str) -> pa.Table:
    return db.to_arrow(f"{DATABASE}.{table}", db.info(f"{DATABASE}.{table}").get_primary_keys())


def attempt_of(entry: Mapping[str, Any]) -> StagedAttempt:
    fields = dict(entry["attempt"])
    buckets = tuple(StagedBucket(**bucket) for bucket in fields.pop("buckets"))
    return StagedAttempt(**fields, buckets=buckets)


def test_every_row_is_found_by_every_way(archive: Archive) -> None:
    with opened(archive) as cluster, connect(cluster.bootstrap_servers) as db:
        wait_for_decided_rows(db)
        assert sorted(db.tables(DATABASE)) == sorted(archive.tables)
        for name, expected in archive.tables.items():
            assert db.info(f"{DATABASE}.{name}").get_column_names() == expected["columns"], name
            assert read_rows(db, name) == expected["rows"], name
            if "records" in expected:
                assert read_records(db, name, len(expected["records"])) == expected["records"], name
                later = [end for end in read_ends(db, name) if end not in expected["ends"]]
                # Years after, automatic partitions have come; they are empty.
                assert all(first == after == 0 and name.endswith("_years") for *_, first, after in later), name
            if expected["primary_keys"]:
                found = db.lookup_many(f"{DATABASE}.{name}", keys_of(db, name))
                assert shown_rows(found) == expected["rows"], name
            if "lake_rows" in expected:
                assert db.to_arrow(f"{DATABASE}.{name}", read_optimized=True).num_rows == expected["lake_rows"], name
        assert db.lookup(f"{DATABASE}.kv_plain", 5) is None, "it was deleted"


def test_permissions_places_and_staged_rows_are_what_they_were(archive: Archive) -> None:
    config = {**NOBODY_CLEANS, **TWO_LISTENERS, "authorizer.enabled": "true"}
    with (
        opened(archive, config) as cluster,
        fluss.connect(cluster.listener_address("CLIENT"), username="admin", password=USERS["admin"]) as db,
    ):
        check_permissions(db, archive.expected["acls"])
        check_cursors(db, archive.expected["cursors"])
        wait_for_decided_rows(db)
        staged, table = archive.expected["staged"], open_table(db, "log_staged")
        for transaction, batch_id in staged["last_committed"].items():
            assert last_committed(table, transaction) == batch_id
        rows = archive.tables["log_staged"]["rows"]
        assert read_rows(db, "log_staged") == rows, "what was decided is there, and nothing else"

        prepared = attempt_of(staged["prepared"])
        assert commit_staged(table, prepared.transaction, prepared.batch_id, [prepared])
        assert not commit_staged(table, prepared.transaction, prepared.batch_id, [prepared])
        only_staged = attempt_of(staged["staged"])
        abort_staged(table, only_staged.transaction, only_staged.batch_id, [only_staged])
        assert read_rows(db, "log_staged") == sorted(rows + staged["prepared"]["rows"], key=repr)
        wait_until(lambda: not list(archive.data.rglob("*.staged")), "no staged file is left")
        with pytest.raises(fluss.FlussError, match="not all staged"):
            commit_staged(table, only_staged.transaction, only_staged.batch_id, [only_staged])


def check_cursors(db: fluss.Database, expected: Mapping[str, Any]) -> None:
    path = f"{DATABASE}.log_stream"
    found = asyncio.run(db.connection.get_admin().get_cursor(path, "mailer"))
    assert found is not None
    assert {str(bucket.bucket_id): offset for bucket, offset in found.items()} == expected["mailer"]
    request = pb.GetProducerOffsetsRequest(producer_id="golden-producer")
    answer = db._session.run(db._session.cluster.call_coordinator(ApiKey.GET_PRODUCER_OFFSETS, request))
    offsets = {str(each.bucket_id): each.log_end_offset for each in answer.table_offsets[0].bucket_offsets}
    assert offsets == expected["golden-producer"]


def check_permissions(db: fluss.Database, expected: list[list[str]]) -> None:
    acls = asyncio.run(db.connection.get_admin().list_acls())
    assert sorted([acl.principal, acl.operation, acl.resource, acl.host] for acl in acls) == expected


def test_lost_stores_are_built_anew_from_the_snapshots(archive: Archive, caplog: pytest.LogCaptureFixture) -> None:
    stores = list(archive.data.glob("data/**/kv-*/db"))
    for store in stores:
        shutil.rmtree(store)
    caplog.set_level(logging.INFO, "fluss.server.tablet.kv_snapshots.restore")
    with opened(archive) as cluster, connect(cluster.bootstrap_servers) as db:
        for name, expected in archive.tables.items():
            if expected["primary_keys"]:
                assert read_rows(db, name) == expected["rows"], name
    assert sum("restored snapshot" in record.getMessage() for record in caplog.records) == len(stores) > 0


def test_it_is_written_on_killed_and_opened_again(archive: Archive) -> None:
    with ServerProcess(archive.data, tablets=2, config=NOBODY_CLEANS) as server:
        with connect(server.address) as db:
            wait_for_decided_rows(db)
            expected = {name: write_on(db, name, table) for name, table in archive.tables.items()}
            check_new_numbers(db, archive.tables["kv_numbered"]["rows"])
            expected["kv_numbered"] = read_rows(db, "kv_numbered")
        server.kill()
        server.start()
        with connect(server.address) as db:
            for name, rows in expected.items():
                assert read_rows(db, name) == rows, name
            tier_all(db)
            for name, rows in expected.items():
                assert read_rows(db, name) == rows, name
                if name.startswith("lake_"):
                    lake = db.to_arrow(f"{DATABASE}.{name}", read_optimized=True)
                    assert shown_rows(lake.select(archive.tables[name]["columns"])) == rows, name


def write_on(db: fluss.Database, name: str, table: Mapping[str, Any]) -> list[Any]:
    """Append the first row again, or delete it where deletes are served; the rows of the table afterwards."""
    path, rows = f"{DATABASE}.{name}", table["rows"]
    first = db.to_arrow(path).slice(0, 1)
    (shown,) = shown_rows(first)
    if not table["primary_keys"]:
        db.append(path, first)
        return sorted([*rows, shown], key=repr)
    if name in ("kv_first", "kv_versioned", "kv_aggregated", "kv_numbered"):
        return list(rows)
    db.delete(path, first.select(table["primary_keys"]))
    return [row for row in rows if row != shown]


def check_new_numbers(db: fluss.Database, rows: list[Any]) -> None:
    """Automatic numbers go on behind those that were given out."""
    db.upsert(f"{DATABASE}.kv_numbered", [{"name": "new"}], ["name"])
    number = db.lookup(f"{DATABASE}.kv_numbered", "new")["number"]
    assert number not in {given for _, given in rows}


def tier_all(db: fluss.Database) -> None:
    with tiering_service(db, OPTIONS, Watching(), None) as service:
        for result in service.once():
            assert isinstance(result, RoundReport), result
            assert result.error is None


def test_archives_are_all_listed_and_small() -> None:
    """Golden data is for ever in the history of the repository."""
    here = Path(__file__).parent
    assert sorted(path.name.removesuffix(".tar.xz") for path in here.glob("*.tar.xz")) == sorted(ARCHIVES + GAPS)
    assert sum(os.path.getsize(path) for path in here.glob("*.tar.xz")) < 3 * 1024 * 1024 * len(ARCHIVES)
