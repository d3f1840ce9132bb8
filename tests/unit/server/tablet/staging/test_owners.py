"""Staged appends belong to the user who began them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fluss.errors import ErrorCode, FlussError
from fluss.model.descriptor import table_descriptor_from_json
from fluss.model.paths import TablePath
from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol import staged_api_pb2 as staged_pb
from fluss.protocol.api_keys import ApiKey
from fluss.server.catalog import CatalogStore, staged_owners, staged_records
from fluss.server.catalog.database_file import CATALOG_FILE_NAME
from tests.support.harness.staged_tablet import QUERY, TIMEOUT_MS, Attempt, StagedTablet, run_tablet
from tools.servers.messages import table_document, text_column

ANN: dict[str, Any] = {"principal_name": "ann"}
BOB: dict[str, Any] = {"principal_name": "bob"}
NO_USER: dict[str, Any] = {}
OTHERS = "belongs to another user"


async def stage(tablet: StagedTablet, table: int, attempt: Attempt, row: int, **user: Any) -> int:
    """Stage one row; returns the error code."""
    return (await tablet.stage(table, attempt, attempt.batches([row]), **user)).error_code


async def refused(call: Any) -> None:
    with pytest.raises(FlussError, match=OTHERS) as caught:
        await call
    assert caught.value.error_code == ErrorCode.AUTHORIZATION_EXCEPTION
    assert "ann" not in caught.value.message


@pytest.mark.parametrize("other", [BOB, NO_USER], ids=["another", "no user"])
def test_other_users_cannot_touch_a_staged_append(tmp_path: Path, other: dict[str, Any]) -> None:
    async def scenario(tablet: StagedTablet) -> None:
        table = tablet.create_table("t")
        attempt = Attempt(1)
        assert await stage(tablet, table, attempt, 1, **ANN) == 0
        assert await stage(tablet, table, Attempt(2), 2, **other) == ErrorCode.AUTHORIZATION_EXCEPTION
        await refused(tablet.prepare(table, attempt, **other))
        await refused(tablet.abort(table, **other))
        await refused(tablet.apply(table, **other))
        with pytest.raises(FlussError, match=OTHERS):
            tablet.decide(table, attempt, **other)
        with pytest.raises(FlussError, match=OTHERS):  # A high batch id: everything below it would count as done.
            tablet.decide(table, Attempt(3, batch_id=1000), **other)
        asked = staged_pb.GetStagedCommitRequest(table_id=table, transaction=QUERY)
        with pytest.raises(FlussError, match=OTHERS):
            tablet.coordinator.call(ApiKey.GET_STAGED_COMMIT, asked, **other)
        await tablet.prepare(table, attempt, **ANN)
        assert tablet.decide(table, attempt, **ANN)
        await tablet.apply(table, **ANN)
        assert await tablet.rows(table) == [1]

    run_tablet(tmp_path, scenario)


def test_rows_of_others_cannot_be_committed_by_their_writer_id(tmp_path: Path) -> None:
    async def scenario(tablet: StagedTablet) -> None:
        table = tablet.create_table("t")
        attempt = Attempt(1)
        assert await stage(tablet, table, attempt, 1, **ANN) == 0
        stolen = Attempt(1, transaction="mine")
        stolen.sent = attempt.sent
        with pytest.raises(FlussError, match="has not staged"):
            tablet.decide(table, stolen, **BOB)
        assert tablet.decide(table, attempt, **ANN)

    run_tablet(tmp_path, scenario)


def test_owners_survive_a_restart_and_a_first_decision_makes_one(tmp_path: Path) -> None:
    async def first(tablet: StagedTablet) -> None:
        table = tablet.create_table("t")
        assert await stage(tablet, table, Attempt(1), 1, **ANN) == 0
        # A micro-batch without rows decides without staging anything.
        assert tablet.decide(table, Attempt(2, transaction="empty"), **ANN)

    async def second(tablet: StagedTablet) -> None:
        table = int(tablet.coordinator.table_info("t").table_id)
        assert await stage(tablet, table, Attempt(3), 1, **BOB) == ErrorCode.AUTHORIZATION_EXCEPTION
        with pytest.raises(FlussError, match=OTHERS):
            tablet.decide(table, Attempt(4, batch_id=1, transaction="empty"), **BOB)

    run_tablet(tmp_path, first)
    run_tablet(tmp_path, second)


def test_transactions_without_an_owner_go_to_the_first_user_who_logs_in(tmp_path: Path) -> None:
    """All transactions of versions that recorded no owners are of this kind."""

    async def scenario(tablet: StagedTablet) -> None:
        table = tablet.create_table("t")
        assert tablet.decide(table, Attempt(1), **NO_USER)
        assert await stage(tablet, table, Attempt(2, batch_id=1), 1, **ANN) == 0
        assert await stage(tablet, table, Attempt(3, batch_id=1), 1, **BOB) == ErrorCode.AUTHORIZATION_EXCEPTION

    run_tablet(tmp_path, scenario)


def test_super_users_may_finish_transactions_of_others(tmp_path: Path) -> None:
    async def scenario(tablet: StagedTablet) -> None:
        store = tablet.coordinator.catalog.store
        descriptor = table_descriptor_from_json(table_document([text_column("a")], bucket_count=1))
        table = store.create_table(TablePath("fluss", "t"), descriptor, 1)
        store.staged.owners.claim(table, QUERY, "User:ann", 1)
        context: dict[str, Any] = {"principal_name": "root"}
        request = staged_pb.ApplyStagedRequest(table_id=table, transaction=QUERY, batch_id=0, timeout_ms=TIMEOUT_MS)
        await tablet.call(ApiKey.APPLY_STAGED, request, **context)
        await tablet.abort(table, **context)

    run_tablet(tmp_path, scenario, authorizer_enabled=True, super_users=(("User", "root"),))


def test_a_user_with_too_many_transactions_loses_the_oldest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staged_owners, "UNDECIDED_PER_TABLE_LIMIT_ROWS", 10)
    monkeypatch.setattr(staged_records, "TRANSACTIONS_PER_TABLE_LIMIT_ROWS", 10)
    store = CatalogStore(tmp_path / CATALOG_FILE_NAME)
    store.create_first_database("fluss", 1)
    descriptor = table_descriptor_from_json(table_document([text_column("a")], bucket_count=1))
    table = store.create_table(TablePath("fluss", "t"), descriptor, 1)
    staged = store.staged
    staged.owners.claim(table, "ann's", "User:ann", 1)
    staged.decide(table, "ann decided", 5, "t", [], 1, "User:ann")
    for number in range(30):
        staged.owners.claim(table, f"staged {number}", "User:bob", 2 + number)
        staged.decide(table, f"decided {number}", 0, "t", [], 2 + number, "User:bob")
    assert staged.last_batch_id(table, "ann decided") == 5
    for name in ("ann's", "ann decided"):
        with pytest.raises(FlussError, match=OTHERS):
            staged.owners.check(table, name, "User:bob")
    (count,) = store.file.connection.execute("SELECT count(*) FROM staged_owners").fetchone()
    assert count <= 20
    store.close()


def test_rows_staged_before_a_transaction_was_lost_belong_to_no_other_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staged_owners, "UNDECIDED_PER_TABLE_LIMIT_ROWS", 10)
    older = "older than the known owner of transaction 'query'"

    async def scenario(tablet: StagedTablet) -> None:
        table, store = tablet.create_table("t"), tablet.coordinator.catalog.store
        init_writer = pb.InitWriterRequest()
        init_writer.table_path.add(database_name="fluss", table_name="t")

        async def new_id() -> int:
            return int((await tablet.call(ApiKey.INIT_WRITER, init_writer, **ANN)).writer_id)

        anns, kept = Attempt(await new_id()), Attempt(await new_id(), transaction="kept")
        bobs_old = Attempt(await new_id())
        assert await stage(tablet, table, anns, 1, **ANN) == 0
        tablet.coordinator.now_ms += 1
        assert await stage(tablet, table, kept, 2, **ANN) == 0
        for number in range(20):
            tablet.coordinator.now_ms += 1
            store.staged.owners.claim(table, f"name {number}", "User:ann", tablet.coordinator.now_ms)
        for user in (BOB, NO_USER):
            with pytest.raises(FlussError, match=older) as caught:
                tablet.decide(table, anns, **user)
            assert caught.value.error_code == ErrorCode.UNKNOWN_WRITER_ID_EXCEPTION
        assert await stage(tablet, table, bobs_old, 3, **BOB) == ErrorCode.UNKNOWN_WRITER_ID_EXCEPTION
        with pytest.raises(FlussError, match=older):
            tablet.decide(table, anns, **BOB)
        bobs = Attempt(await new_id())
        assert await stage(tablet, table, bobs, 4, **BOB) == 0
        assert tablet.decide(table, bobs, **BOB)
        await tablet.apply(table, **BOB)
        assert await tablet.rows(table) == [4]

    run_tablet(tmp_path, scenario)
