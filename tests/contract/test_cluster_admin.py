"""Permissions, server tags, rebalances and leases through `FlussAdmin`: the same answers and codes on every server."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pyarrow as pa
import pytest

import fluss
from fluss import Acl, BucketMove, ErrorCode, FlussAdmin, FlussConnection, FlussError, RebalanceProgress
from fluss.client.state.snapshot_plan import KvSnapshot, SnapshotLease, latest_snapshots
from fluss.values.basic import TableBucket
from tests.support.servers.restartable import RestartableServer
from tests.support.servers.targets import Target
from tests.support.tables.kv_tables import KvTable, user
from tools.waiting import eventually, wait_until


def code_of(coroutine: Coroutine[Any, Any, object]) -> int:
    with pytest.raises(FlussError) as caught:
        asyncio.run(coroutine)
    return caught.value.error_code


async def until_listed(admin: FlussAdmin, expected: set[Acl], **chosen: str) -> None:
    """Apache Fluss hears of new permissions a moment after it has answered."""

    async def are_listed() -> bool:
        return set(await admin.list_acls(**chosen)) == expected

    await eventually(are_listed, f"exactly {expected} are listed")


@pytest.fixture
def admin(connection: FlussConnection) -> FlussAdmin:
    return connection.get_admin()


def test_permissions_are_given_listed_and_taken(server: RestartableServer, table_name: str) -> None:
    database = f"d_{table_name}"
    resource = f"cluster.{database}.orders"
    read = Acl("User:alice", "read", resource)
    everybody = Acl("*", "DESCRIBE", resource)
    from_home = Acl("User:bob", "all", f"cluster.{database}", "127.0.0.1")
    cluster_wide = Acl(f"User:{table_name}", "create", "cluster")
    every_table = Acl(f"User:{table_name}", "write", "cluster.*.*")

    async def body(admin: FlussAdmin) -> None:
        await admin.create_acls([read, everybody, from_home])
        await admin.create_acls(read)  # again: nothing changes
        await admin.create_acls([cluster_wide, every_table])
        await until_listed(admin, {read, everybody}, resource=resource)
        await until_listed(admin, {from_home}, resource=f"cluster.{database}")
        await until_listed(admin, {cluster_wide, every_table}, principal=f"User:{table_name}")
        assert set(await admin.list_acls(resource=resource, operation="any")) == {read, everybody}
        assert await admin.list_acls(resource=resource, operation="READ") == [read]
        assert await admin.list_acls(resource=resource, principal="*") == [everybody]
        assert await admin.list_acls(resource=f"cluster.{database}", host="127.0.0.1") == [from_home]
        assert await admin.list_acls(resource=f"cluster.{database}", host="10.0.0.1") == []
        assert {read, everybody, from_home, cluster_wide, every_table} <= set(await admin.list_acls())
        assert await admin.drop_acls(resource=resource, operation="write") == []
        assert await admin.drop_acls(resource=resource, operation="read") == [read]
        assert set(await admin.drop_acls(principal=f"User:{table_name}")) == {cluster_wide, every_table}
        assert await admin.drop_acls(resource=resource) == [everybody]
        assert await admin.drop_acls(resource=f"cluster.{database}") == [from_home]
        await until_listed(admin, set(), resource=resource)

    with FlussConnection.open(server.config()) as connection:
        asyncio.run(body(connection.get_admin()))


def test_permissions_are_given_and_taken_all_or_none(server: RestartableServer, table_name: str) -> None:
    mine, other = f"d_{table_name}", f"o_{table_name}"
    of_mine, of_other = (Acl(f"User:{table_name}", "read", f"cluster.{database}") for database in (mine, other))

    async def is_refused(call: Coroutine[Any, Any, object], resource: str) -> None:
        with pytest.raises(FlussError, match=resource) as caught:
            await call
        assert caught.value.error_code == ErrorCode.AUTHORIZATION_EXCEPTION

    async def body(root: FlussAdmin, alice: FlussAdmin) -> None:
        for database in (mine, other):
            await root.create_database(database)
        await is_refused(alice.create_acls(of_mine), mine)
        await root.create_acls(Acl("User:alice", "all", f"cluster.{mine}"))

        async def may_give() -> bool:
            try:
                await alice.create_acls(of_mine)
            except FlussError:
                return False
            return True

        await eventually(may_give, "the permission of alice has arrived")
        assert await alice.drop_acls(principal=of_mine.principal, resource=of_mine.resource) == [of_mine]
        await is_refused(alice.create_acls([of_mine, of_other]), other)
        await until_listed(root, set(), principal=of_mine.principal)
        await root.create_acls([of_mine, of_other])
        await until_listed(root, {of_mine, of_other}, principal=of_mine.principal)
        # Apache Fluss asks for permission on what others have, too, and names the first that comes; ours names nothing
        # that alice may not see.
        await is_refused(
            alice.drop_acls(principal=of_mine.principal),
            "authorization" if server.target.is_apache else "this database",
        )
        await until_listed(root, {of_mine, of_other}, principal=of_mine.principal)

    with (
        FlussConnection.open(server.config()) as connection,
        FlussConnection.open(server.target.sasl_config("alice")) as of_alice,
    ):
        asyncio.run(body(connection.get_admin(), of_alice.get_admin()))


def test_a_cluster_without_permissions_says_so(admin: FlussAdmin) -> None:
    disabled = ErrorCode.SECURITY_DISABLED_EXCEPTION
    assert code_of(admin.create_acls(Acl("User:alice", "read", "cluster"))) == disabled
    assert code_of(admin.list_acls()) == disabled
    assert code_of(admin.drop_acls(principal="User:alice")) == disabled


def test_server_tags(admin: FlussAdmin) -> None:
    asyncio.run(admin.add_server_tag([0], "temporary_offline"))
    asyncio.run(admin.add_server_tag(0, "TEMPORARY-OFFLINE"))  # again: nothing changes
    other = "permanent_offline"
    assert code_of(admin.add_server_tag([0], other)) == ErrorCode.SERVER_TAG_ALREADY_EXIST_EXCEPTION
    assert code_of(admin.remove_server_tag([0], other)) == ErrorCode.SERVER_TAG_NOT_EXIST_EXCEPTION
    asyncio.run(admin.remove_server_tag([0], "temporary_offline"))
    asyncio.run(admin.remove_server_tag([0], other))  # there is none any more
    assert code_of(admin.add_server_tag([77], other)) == ErrorCode.SERVER_NOT_EXIST_EXCEPTION


def test_tables_need_tablet_servers_that_stay(admin: FlussAdmin, target: Target, table_name: str) -> None:
    schema = fluss.Schema(pa.schema([("id", pa.int32())]))
    table = admin.create_table(f"fluss.{table_name}", fluss.TableDescriptor(schema))
    servers = range(target.tablet_count)
    asyncio.run(admin.add_server_tag(servers, "permanent_offline"))
    try:
        assert code_of(table) == ErrorCode.INVALID_REPLICATION_FACTOR
    finally:
        asyncio.run(admin.remove_server_tag(servers, "permanent_offline"))


def test_a_rebalance_comes_to_its_end(admin: FlussAdmin) -> None:
    async def body() -> None:
        rebalance_id = await admin.rebalance()
        found: list[RebalanceProgress] = []

        async def is_done() -> bool:
            progress = await admin.list_rebalance_progress(rebalance_id)
            assert progress is not None
            found.append(progress)
            return progress.is_done

        await eventually(is_done, "the rebalance is done")
        assert (found[-1].rebalance_id, found[-1].status) == (rebalance_id, "completed")
        assert all(move.is_done for move in found[-1].moves.values())
        assert all(isinstance(move, BucketMove) for move in found[-1].moves.values())
        latest = await admin.list_rebalance_progress()
        assert latest is not None
        assert latest.rebalance_id == rebalance_id
        await admin.cancel_rebalance()  # it is done already

    asyncio.run(body())
    unknown = ErrorCode.NO_REBALANCE_IN_PROGRESS_EXCEPTION
    assert code_of(admin.list_rebalance_progress("another")) == unknown
    assert code_of(admin.cancel_rebalance("another")) == unknown


def test_snapshots_of_a_dropped_lease_may_go(server: RestartableServer, table_name: str) -> None:
    server.comes_back()
    with FlussConnection.open(server.config()) as connection:
        table = KvTable(connection, table_name, bucket_count=1)
        session, inner = connection._session, table.table._table
        bucket = TableBucket(inner.table_id, 0)

        def newest() -> KvSnapshot | None:
            return session.run(latest_snapshots(session.cluster, inner, [bucket])).get(bucket)

        def wait_for_another(than: KvSnapshot | None) -> None:
            wait_until(lambda: newest() not in (None, than), "a newer snapshot")

        def drop(lease_id: str) -> None:
            asyncio.run(connection.get_admin().drop_kv_snapshot_lease(lease_id))

        def has_gone(first: KvSnapshot) -> bool:
            """Not as long as it is leased; a newer snapshot makes it superfluous."""
            lease = SnapshotLease(session.cluster, {bucket: first})
            before = newest()
            try:
                session.run(lease.acquire())
            except FlussError as error:
                return error.error_code == ErrorCode.KV_SNAPSHOT_NOT_EXIST
            drop(lease._id)
            table.write([user(2)])
            wait_for_another(before)
            return False

        table.write([user(1)])
        wait_for_another(None)
        first = newest()
        assert first is not None
        reader_that_died = SnapshotLease(session.cluster, {bucket: first})
        session.run(reader_that_died.acquire())
        assert not any(has_gone(first) for _ in range(2))
        drop(reader_that_died._id)
        drop("there is no such lease")
        if not server.target.is_apache:  # which leases it again although newer ones have come
            wait_until(lambda: has_gone(first), "the snapshot has gone")


def test_wrong_values_are_refused_before_anything_is_sent(admin: FlussAdmin) -> None:
    async def body() -> None:
        for wrong in (
            admin.create_acls([]),
            admin.create_acls("User:alice"),  # type: ignore[arg-type]
            admin.create_acls(Acl("alice", "read", "cluster")),
            admin.create_acls(Acl("User:alice", "any", "cluster")),
            admin.create_acls(Acl("User:alice", "look", "cluster")),
            admin.create_acls(Acl("User:alice", "read", "shop.orders")),
            admin.create_acls(Acl("User:alice", "read", "cluster.shop.*")),
            admin.create_acls(Acl("User:alice", "read", "cluster.shop.orders.id")),
            admin.create_acls(Acl("User:alice", "read", "cluster", "")),
            admin.drop_acls(),
            admin.add_server_tag([], "permanent_offline"),
            admin.add_server_tag(["0"], "permanent_offline"),  # type: ignore[list-item]
            admin.add_server_tag([0], "offline"),
            admin.rebalance([]),
            admin.rebalance("rack_aware"),
            admin.rebalance(["evenly"]),
            admin.list_rebalance_progress(7),  # type: ignore[arg-type]
            admin.drop_kv_snapshot_lease(None),  # type: ignore[arg-type]
        ):
            with pytest.raises(FlussError) as caught:
                await wrong
            assert caught.value.error_code == ErrorCode.CLIENT_ERROR

    asyncio.run(body())
