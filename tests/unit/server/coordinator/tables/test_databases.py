"""Database calls."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol.api_keys import ApiKey
from fluss.server.coordinator.tables import database_apis
from fluss.server.runtime import time_slices
from tests.support.harness.coordinator import NOON_2024_09_19_MS, CoordinatorHarness
from tools.servers.messages import config_change, path, table_document


def create(name: str, ignore: bool = False, document: bytes | None = None) -> pb.CreateDatabaseRequest:
    return pb.CreateDatabaseRequest(database_name=name, ignore_if_exists=ignore, database_json=document)


def drop(name: str, ignore: bool = False, cascade: bool = False) -> pb.DropDatabaseRequest:
    return pb.DropDatabaseRequest(database_name=name, ignore_if_not_exists=ignore, cascade=cascade)


def exists(coordinator: CoordinatorHarness, name: str, **more: Any) -> bool:
    answer = coordinator.call(ApiKey.DATABASE_EXISTS, pb.DatabaseExistsRequest(database_name=name), **more)
    return bool(answer.exists)


def info(coordinator: CoordinatorHarness, name: str) -> tuple[Any, int, int]:
    answer = coordinator.call(ApiKey.GET_DATABASE_INFO, pb.GetDatabaseInfoRequest(database_name=name))
    return json.loads(answer.database_json), answer.created_time, answer.modified_time


def test_life_of_a_database(coordinator: CoordinatorHarness) -> None:
    assert exists(coordinator, "fluss")
    assert not exists(coordinator, "db")
    document = b'{"version":1,"comment":"staging","custom_properties":{"team":"ingest","k":"v"}}'
    coordinator.call(ApiKey.CREATE_DATABASE, create("db", document=document))
    assert exists(coordinator, "db")
    assert exists(coordinator, "db", tablet=True)
    assert info(coordinator, "db") == (json.loads(document), NOON_2024_09_19_MS, NOON_2024_09_19_MS)
    names = coordinator.call(ApiKey.LIST_DATABASES, pb.ListDatabasesRequest())
    assert (list(names.database_name), list(names.database_summary)) == (["db", "fluss"], [])
    coordinator.call(ApiKey.DROP_DATABASE, drop("db"))
    assert not exists(coordinator, "db", tablet=True)


def test_summaries_instead_of_names(coordinator: CoordinatorHarness) -> None:
    coordinator.create_table("t")
    answer = coordinator.call(ApiKey.LIST_DATABASES, pb.ListDatabasesRequest(include_summary=True))
    assert not answer.database_name
    (summary,) = answer.database_summary
    assert (summary.database_name, summary.created_time, summary.table_count) == ("fluss", NOON_2024_09_19_MS, 1)


def test_a_missing_descriptor_is_an_empty_one(coordinator: CoordinatorHarness) -> None:
    coordinator.call(ApiKey.CREATE_DATABASE, create("db"))
    assert info(coordinator, "db")[0] == {"version": 1, "custom_properties": {}}


@pytest.mark.parametrize("name", ["", "a.b", "__db", "x" * 201, ".."])
def test_bad_names(coordinator: CoordinatorHarness, name: str) -> None:
    coordinator.refuses(16, ApiKey.CREATE_DATABASE, create(name))


def test_errors(coordinator: CoordinatorHarness) -> None:
    coordinator.refuses(16, ApiKey.CREATE_DATABASE, create("db", document=b"[]"))
    coordinator.call(ApiKey.CREATE_DATABASE, create("db"))
    coordinator.refuses(6, ApiKey.CREATE_DATABASE, create("db"))
    coordinator.call(ApiKey.CREATE_DATABASE, create("db", ignore=True))
    coordinator.refuses(4, ApiKey.GET_DATABASE_INFO, pb.GetDatabaseInfoRequest(database_name="x"))
    coordinator.refuses(4, ApiKey.LIST_TABLES, pb.ListTablesRequest(database_name="x"))
    coordinator.refuses(4, ApiKey.DROP_DATABASE, drop("x"))
    coordinator.call(ApiKey.DROP_DATABASE, drop("x", ignore=True))
    assert "default database" in coordinator.refuses(-1, ApiKey.DROP_DATABASE, drop("fluss", cascade=True))


def test_a_database_with_tables(coordinator: CoordinatorHarness) -> None:
    coordinator.call(ApiKey.CREATE_DATABASE, create("db"))
    coordinator.create_table("t", database="db")
    coordinator.refuses(5, ApiKey.DROP_DATABASE, drop("db"))
    coordinator.call(ApiKey.DROP_DATABASE, drop("db", cascade=True))
    coordinator.refuses(4, ApiKey.LIST_TABLES, pb.ListTablesRequest(database_name="db"), tablet=True)


def test_alter(coordinator: CoordinatorHarness) -> None:
    coordinator.call(ApiKey.CREATE_DATABASE, create("db", document=b'{"comment":"old","custom_properties":{"a":"1"}}'))
    coordinator.now_ms += 5

    def alter(comment: str | None = None, name: str = "db", ignore: bool = False, **changes: str | None) -> Any:
        return pb.AlterDatabaseRequest(
            database_name=name,
            ignore_if_not_exists=ignore,
            comment=comment,
            config_changes=[config_change(key, value) for key, value in changes.items()],
        )

    coordinator.call(ApiKey.ALTER_DATABASE, alter(a="1"))  # nothing changes
    assert info(coordinator, "db")[2] == NOON_2024_09_19_MS
    coordinator.call(ApiKey.ALTER_DATABASE, alter(a=None, b="2"))
    node = {"version": 1, "comment": "old", "custom_properties": {"b": "2"}}
    assert info(coordinator, "db") == (node, NOON_2024_09_19_MS, NOON_2024_09_19_MS + 5)
    coordinator.call(ApiKey.ALTER_DATABASE, alter("new"))
    assert info(coordinator, "db")[0]["comment"] == "new"
    coordinator.call(ApiKey.ALTER_DATABASE, alter(""))
    assert "comment" not in info(coordinator, "db")[0]
    coordinator.refuses(4, ApiKey.ALTER_DATABASE, alter(name="x"))
    coordinator.call(ApiKey.ALTER_DATABASE, alter(name="x", ignore=True))
    for operation in (2, 3, 9):
        request = pb.AlterDatabaseRequest(
            database_name="db", ignore_if_not_exists=False, config_changes=[config_change("a", "1", operation)]
        )
        coordinator.refuses(-1, ApiKey.ALTER_DATABASE, request)


def test_a_database_of_many_tables_is_dropped_in_steps(
    coordinator: CoordinatorHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand tables took a quarter of a second, in which the coordinator answered no other request."""
    monkeypatch.setattr(time_slices, "TIME_SLICE_SECONDS", 0.0)
    monkeypatch.setattr(database_apis, "TABLES_PER_STEP", 5)
    coordinator.call(ApiKey.CREATE_DATABASE, create("db"))
    create_table = pb.CreateTableRequest(table_json=table_document(), ignore_if_exists=False)
    for number in range(22):
        create_table.table_path.CopyFrom(path(f"t{number}", "db"))
        coordinator.call(ApiKey.CREATE_TABLE, create_table)
    coordinator.create_table("kept")
    steps = coordinator.loop_steps_during(ApiKey.DROP_DATABASE, drop("db", cascade=True))
    assert steps >= 22 + 22 // 5
    assert not exists(coordinator, "db", tablet=True)
    coordinator.call(ApiKey.CREATE_DATABASE, create("db"))
    for database, names in (("db", []), ("fluss", ["kept"])):
        answer = coordinator.call(ApiKey.LIST_TABLES, pb.ListTablesRequest(database_name=database))
        assert list(answer.table_name) == names
    assert len(coordinator.catalog.store.drops.all().tables) == 22
