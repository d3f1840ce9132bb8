"""Lake tables are created before their Fluss tables, and a failing or hung lake affects no other tables."""

from __future__ import annotations

import asyncio
import inspect
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fluss.errors import FlussError
from fluss.lake.tables.interface.format import LakeFormat
from fluss.lake.tables.open_lake import lake_of
from fluss.model.paths import TableBucket, TablePath
from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol.api_keys import ApiKey
from fluss.server.coordinator.lake.lake_threads import WORK_LIMIT_THREADS, LakeThreads
from fluss.server.runtime.handlers import RequestContext
from tests.support.harness.coordinator import CoordinatorHarness
from tools.servers.messages import alter_properties, config_change, int_column, path, table_document, text_column
from tools.waiting import eventually

Make = Callable[..., CoordinatorHarness]
LAKE = {"table.datalake.enabled": "true"}
DOCUMENT = table_document(properties=LAKE)
PATH = TablePath("fluss", "t")


def lake_of_table(coordinator: CoordinatorHarness) -> LakeFormat:
    return lake_of(coordinator.table_node("t")["properties"])


def test_a_missing_database_is_found_before_the_lake_is_touched(make_coordinator: Make) -> None:
    coordinator = make_coordinator()
    coordinator.refuses(4, ApiKey.CREATE_TABLE, coordinator.create_table_request("t", DOCUMENT, database="nowhere"))
    assert not (coordinator.config.data_dir / "lake").exists()


def test_what_iceberg_cannot_hold_is_refused_and_leaves_no_table(make_coordinator: Make) -> None:
    coordinator = make_coordinator()
    two_keys = table_document(
        [int_column("a"), int_column("b"), text_column("c")], bucket_key=["a", "b"], properties=LAKE
    )
    assert "exactly one column" in coordinator.refuses_table(15, two_keys)
    assert coordinator.catalog.table(PATH) is None


def test_a_leftover_lake_table_is_used_while_it_is_empty(make_coordinator: Make) -> None:
    coordinator = make_coordinator()
    coordinator.create_table("t", DOCUMENT)
    lake = lake_of_table(coordinator)
    coordinator.call(ApiKey.DROP_TABLE, pb.DropTableRequest(table_path=path("t"), ignore_if_not_exists=False))
    coordinator.create_table("t", DOCUMENT)
    table_id = coordinator.table_info("t").table_id
    lake.load(PATH).commit(table_id, [], {TableBucket(table_id, None, 0): 3})
    other_columns = table_document([text_column("z")], properties=LAKE)
    coordinator.call(ApiKey.DROP_TABLE, pb.DropTableRequest(table_path=path("t"), ignore_if_not_exists=False))
    assert "columns" in coordinator.refuses_table(54, other_columns)
    coordinator.create_table("t", DOCUMENT)  # a commit without rows left it empty
    lake.close()


def test_creating_twice(make_coordinator: Make) -> None:
    coordinator = make_coordinator()
    coordinator.create_table("t", DOCUMENT)
    assert coordinator.refuses_table(8, DOCUMENT)
    coordinator.create_table("t", DOCUMENT, ignore=True)


def test_concurrent_requests_create_one_table(make_coordinator: Make) -> None:
    coordinator = make_coordinator()
    request = coordinator.create_table_request("t", DOCUMENT, ignore=True)

    async def both() -> None:
        await asyncio.gather(*(begun(coordinator, ApiKey.CREATE_TABLE, request) for _ in range(2)))

    asyncio.run(both())
    assert coordinator.table_info("t").table_id == 0


def test_disabling_and_enabling_again(make_coordinator: Make) -> None:
    coordinator = make_coordinator()
    coordinator.create_table("t", DOCUMENT)
    coordinator.call(ApiKey.ALTER_TABLE, alter_properties("t", {"table.datalake.enabled": "false"}))
    assert "table.datalake.iceberg.uri" not in coordinator.table_node("t")["properties"]
    coordinator.call(ApiKey.ALTER_TABLE, alter_properties("t", LAKE))
    assert "table.datalake.iceberg.uri" in coordinator.table_node("t")["properties"]


def test_enabling_begins_with_what_is_in_the_lake(make_coordinator: Make) -> None:
    coordinator = make_coordinator()
    coordinator.create_table("t", DOCUMENT)
    lake = lake_of_table(coordinator)
    bucket = TableBucket(0, None, 0)
    first = lake.load(PATH).commit(0, [], {bucket: 3})
    wanted = pb.GetLakeSnapshotRequest(table_path=path("t"))
    coordinator.refuses(53, ApiKey.GET_LAKE_SNAPSHOT, wanted)
    coordinator.call(ApiKey.ALTER_TABLE, alter_properties("t", {"table.datalake.enabled": "false"}))
    coordinator.call(ApiKey.ALTER_TABLE, alter_properties("t", LAKE))
    answer = coordinator.call(ApiKey.GET_LAKE_SNAPSHOT, wanted)
    assert (answer.snapshotId, answer.bucket_snapshots[0].log_offset) == (first, 3)
    assert coordinator.catalog.store.lake.end_offset(bucket) == 3
    # The lake is rolled back: registering less than before requires that the lake is enabled again.
    lake.catalog.drop_table(("fluss", "t"))  # type: ignore[attr-defined]
    coordinator.call(ApiKey.ALTER_TABLE, alter_properties("t", {"table.datalake.enabled": "false"}))
    coordinator.call(ApiKey.ALTER_TABLE, alter_properties("t", LAKE))
    coordinator.refuses(53, ApiKey.GET_LAKE_SNAPSHOT, wanted)
    assert coordinator.catalog.store.lake.end_offset(bucket) == 0
    lake.close()


def lake_property(coordinator: CoordinatorHarness, key: str) -> str | None:
    lake = lake_of_table(coordinator)
    try:
        found = lake.catalog.load_table(("fluss", "t")).properties.get(key)  # type: ignore[attr-defined]
        return None if found is None else str(found)
    finally:
        lake.close()


def test_properties_of_the_lake_table_can_be_altered(make_coordinator: Make) -> None:
    coordinator = make_coordinator()
    document = table_document(properties=LAKE, custom_properties={"iceberg.read.split.target-size": "1"})
    coordinator.create_table("t", document)
    size, split = "write.target-file-size-bytes", "read.split.target-size"
    default = lake_property(coordinator, size)
    assert default is not None
    change: dict[str, str | None] = {f"iceberg.{size}": "1000", f"iceberg.{split}": None, "owner": "me"}
    coordinator.call(ApiKey.ALTER_TABLE, alter_properties("t", change))
    assert (lake_property(coordinator, size), lake_property(coordinator, split)) == ("1000", None)
    coordinator.call(ApiKey.ALTER_TABLE, alter_properties("t", {f"iceberg.{size}": None}))
    assert lake_property(coordinator, size) == default
    fixed: dict[str, str | None] = {"iceberg.format-version": "3"}
    assert "format-version" in coordinator.refuses(15, ApiKey.ALTER_TABLE, alter_properties("t", fixed))
    assert coordinator.table_node("t")["custom_properties"] == {"owner": "me"}


def test_properties_altered_without_a_lake_apply_when_it_is_enabled_again(make_coordinator: Make) -> None:
    coordinator = make_coordinator()
    coordinator.create_table("t", DOCUMENT)
    lake = lake_of_table(coordinator)
    lake.load(PATH).commit(0, [], {TableBucket(0, None, 0): 3})
    lake.close()
    coordinator.call(ApiKey.ALTER_TABLE, alter_properties("t", {"table.datalake.enabled": "false"}))
    coordinator.call(ApiKey.ALTER_TABLE, alter_properties("t", {"iceberg.write.target-file-size-bytes": "1000"}))
    coordinator.call(ApiKey.ALTER_TABLE, alter_properties("t", LAKE))
    assert lake_property(coordinator, "write.target-file-size-bytes") == "1000"


def test_the_lake_can_be_replaced(make_coordinator: Make, tmp_path: Path) -> None:
    coordinator = make_coordinator()
    coordinator.create_table("t", DOCUMENT)
    elsewhere = {
        "datalake.iceberg.type": "sql",
        "datalake.iceberg.uri": f"sqlite:///{tmp_path}/other.sqlite",
        "datalake.iceberg.warehouse": f"file://{tmp_path}/other",
    }

    def alter(changes: dict[str, str | None]) -> None:
        request = pb.AlterClusterConfigsRequest(alter_configs=[config_change(*change) for change in changes.items()])
        coordinator.call(ApiKey.ALTER_CLUSTER_CONFIGS, request)

    def names(table: str) -> list[str]:
        lake = lake_of(coordinator.table_node(table)["properties"])
        try:
            return sorted(name for _, name in lake.catalog.list_tables("fluss"))  # type: ignore[attr-defined]
        finally:
            lake.close()

    alter({**elsewhere})
    coordinator.create_table("u", DOCUMENT)
    assert names("u") == ["u"]
    alter(dict.fromkeys(elsewhere))
    coordinator.create_table("v", DOCUMENT)
    assert names("v") == ["t", "v"]
    alter({"datalake.enabled": "false"})
    assert "datalake.enabled" in coordinator.refuses(
        15, ApiKey.CREATE_TABLE, coordinator.create_table_request("w", DOCUMENT)
    )


def begun(coordinator: CoordinatorHarness, key: ApiKey, request: Any) -> asyncio.Task[Any]:
    """Start a request and return it when it waits for the lake."""
    answer = coordinator.service.apis()[key](RequestContext(key), request)
    assert inspect.iscoroutine(answer)
    return asyncio.ensure_future(answer)


@pytest.fixture
def silent_server() -> Iterator[str]:
    """Accept connections and never answer."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def test_a_hung_lake_is_an_error_in_time_and_affects_no_other_table(make_coordinator: Make, silent_server: str) -> None:
    values = {"datalake.iceberg.type": "rest", "datalake.iceberg.uri": silent_server}
    coordinator = make_coordinator(values=values, lake_request_timeout_ms=500)
    request = coordinator.create_table_request("t", DOCUMENT)

    async def meanwhile() -> None:
        began = time.monotonic()
        waiting = begun(coordinator, ApiKey.CREATE_TABLE, request)
        await asyncio.sleep(0)
        plain = coordinator.create_table_request("plain", table_document())
        assert isinstance(
            coordinator.service.apis()[ApiKey.CREATE_TABLE](RequestContext(ApiKey.CREATE_TABLE), plain),
            pb.CreateTableResponse,
        )
        with pytest.raises(FlussError, match=r"did not respond within 0\.5 s") as caught:
            await waiting
        assert caught.value.error_code == 25
        assert time.monotonic() - began > 0.4

    asyncio.run(meanwhile())
    assert coordinator.catalog.table(PATH) is None
    assert coordinator.catalog.table(TablePath("fluss", "plain")) is not None


def test_a_catalog_that_cannot_be_opened_is_named(make_coordinator: Make) -> None:
    values = {"datalake.iceberg.type": "sql", "datalake.iceberg.uri": "sqlite:////no/such/directory/c.sqlite"}
    coordinator = make_coordinator(values=values)
    assert "/no/such/directory" in coordinator.refuses_table(40, DOCUMENT)
    hadoop = make_coordinator(values={"datalake.iceberg.type": "hadoop"})
    assert "needs a JVM" in hadoop.refuses_table(40, DOCUMENT)


def test_abandoned_threads_are_limited() -> None:
    work = LakeThreads(limit_ms=50)
    go_on = threading.Event()

    def hang() -> None:
        go_on.wait()

    async def fill() -> None:
        results = await asyncio.gather(
            *(work.run("hanging", hang) for _ in range(WORK_LIMIT_THREADS)), return_exceptions=True
        )
        assert {getattr(error, "error_code", None) for error in results} == {25}
        with pytest.raises(FlussError, match=f"{WORK_LIMIT_THREADS} earlier calls"):
            await work.run("one more", lambda: 1)

    async def again() -> None:
        async def is_back() -> bool:
            return work._running == 0

        await eventually(is_back, "the threads come back")
        assert await work.run("again", lambda: 1) == 1

    asyncio.run(fill())
    go_on.set()
    asyncio.run(again())
