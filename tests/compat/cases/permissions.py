"""Permissions on a server that checks them: code 48, and what is silently left out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pyarrow as pa

from tests.compat.cases.cluster import SASL, connect
from tests.compat.cases.kit import Context, case, fluss, poll_records, raises
from tools.waiting import eventually

T = TypeVar("T")

SCHEMA = pa.schema([("id", pa.int32()), ("region", pa.string())])


async def login(context: Context, user: str) -> Any:
    """A connection of a user."""
    password = f"{user}-secret"
    settings = {**SASL, "security_sasl_username": user, "security_sasl_password": password}
    return await connect(context.settings["sasl_bootstrap"], **settings)


async def when_allowed(context: Context, call: Callable[[], Awaitable[T]]) -> T:
    """The peer hears of new permissions through ZooKeeper, a moment after it has answered; ours has them at once."""
    if not context.is_apache:
        return await call()
    results: list[T] = []

    async def is_allowed() -> bool:
        try:
            results.append(await call())
        except fluss.FlussError as error:
            errors.append(error)
            return False
        return True

    errors: list[Exception] = []
    await eventually(is_allowed, "the call is allowed", seen=lambda: errors[-1])
    return results[0]


@case(server="guarded", peer=True)
async def nothing_is_allowed(context: Context) -> None:
    """A user without permissions gets 48 for what he names and nothing in lists."""
    path = await context.create(SCHEMA)
    parts = await context.create(SCHEMA, "parts", partition_keys=["region"])
    await context.create_partition(parts, region="x")
    connection = await login(context, "alice")
    admin = connection.get_admin()
    descriptor = fluss.TableDescriptor(fluss.Schema(SCHEMA))
    await raises(48, admin.create_database("of_alice"), "alice")
    await raises(48, admin.drop_database(context.database), "alice", context.database)
    await raises(48, admin.get_database_info(context.database), "alice", context.database)
    await raises(48, admin.create_table(context.path("new"), descriptor), "alice")
    await raises(48, admin.drop_table(path), "alice", f"{context.database}.t")
    await raises(48, admin.get_table_info(path), "alice")
    await raises(48, admin.create_partition(parts, {"region": "y"}), "alice")
    await raises(48, admin.drop_partition(parts, {"region": "x"}), "alice")
    await raises(48, admin.list_partition_infos(parts), "alice")
    await raises(48, admin.get_latest_lake_snapshot(path), "alice")
    assert context.database not in await admin.list_databases()
    assert await admin.list_tables(context.database) == []
    await raises(7, connection.get_table(path))  # left out of the metadata; the client says it is not there
    await connection.close()
    assert await (await context.admin()).table_exists(path)


@case(server="guarded", peer=True)
async def reading_and_writing_need_their_own(context: Context) -> None:
    """DESCRIBE lets a user see a table, READ scan it, WRITE append to it."""
    path = await context.create(SCHEMA)
    await context.append(path, [{"id": 1}])
    await context.ask(f"grant alice DESCRIBE {context.database} t")
    connection = await login(context, "alice")
    table = await connection.get_table(path)
    assert (await connection.get_admin().get_table_info(path)).get_column_names() == ["id", "region"]

    async def poll() -> int:
        scanner = await table.new_scan().create_log_scanner()
        scanner.subscribe(0, 0)
        return len(await poll_records(scanner, 1))

    async def write() -> None:
        await table.new_append().create_writer().append({"id": 2}).wait()  # a flush would not tell the error

    await raises(48, poll())
    bucket = fluss.TableBucket(table.get_table_info().table_id, 0)
    await raises(48, table.new_scan().limit(1).create_bucket_batch_scanner(bucket).next_batch())
    await raises(-2, write(), "code: 48")
    await context.ask(f"grant alice READ {context.database} t")
    assert await when_allowed(context, poll) == 1
    await connection.close()
    connection = await login(context, "alice")
    await context.ask(f"grant alice WRITE {context.database} t")
    table = await connection.get_table(path)
    await when_allowed(context, write)
    assert [row["id"] for row in await context.read_rows(path, 2)] == [1, 2]
    await connection.close()


@case(server="guarded")
async def super_users_may_everything(context: Context) -> None:
    """`admin` is a super user."""
    connection = await login(context, "admin")
    admin = connection.get_admin()
    await admin.create_database(context.database)
    path = context.path("mine")
    await admin.create_table(path, fluss.TableDescriptor(fluss.Schema(SCHEMA)))
    assert await admin.list_tables(context.database) == ["mine"]
    await admin.drop_database(context.database)
    await connection.close()
