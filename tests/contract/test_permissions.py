"""Permissions: what they are called on the wire, and what a user without them is told, on every server.

Apache Fluss hears of new permissions a moment after it has answered; ours has them at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pyarrow as pa
import pytest

import fluss
from fluss import ErrorCode, FlussError
from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol.api_keys import ApiKey
from tests.support.servers.restartable import RestartableServer
from tests.support.tables.kv_tables import KvTable, user
from tests.support.tables.scan_tables import ScanTable, rows_of
from tools.servers.wire_client import WireClient
from tools.waiting import eventually, wait_until

ANY, TABLE, ALLOW = 1, 4, 2
READ, WRITE, DESCRIBE = 3, 4, 8
DENIED = ErrorCode.AUTHORIZATION_EXCEPTION
Call = Callable[[], Awaitable[Any]]


class Permissions:
    """Of alice on one table, given and taken by the internal listener, where everything is allowed."""

    def __init__(self, server: RestartableServer, table_name: str) -> None:
        self._server = server
        self._resource = f"fluss.{table_name}"

    def give(self, *operations: int) -> None:
        request = pb.CreateAclsRequest()
        for operation in operations:
            request.acl.add(
                resource_name=self._resource,
                resource_type=TABLE,
                principal_name="alice",
                principal_type="User",
                host="*",
                operation_type=operation,
                permission_type=ALLOW,
            )
        answer = self._call(ApiKey.CREATE_ACLS, request)
        assert [(result.error_code, result.acl.operation_type) for result in answer.aclRes] == [
            (0, operation) for operation in operations
        ]

    def listed(self, operation: int = ANY) -> set[tuple[str, int]]:
        answer = self._call(ApiKey.LIST_ACLS, pb.ListAclsRequest(acl_filter=self._filter(operation)))
        return {(acl.principal_name, acl.operation_type) for acl in answer.acl}

    def take(self, operation: int) -> set[int]:
        """Operations that were taken away."""
        answer = self._call(ApiKey.DROP_ACLS, pb.DropAclsRequest(acl_filter=[self._filter(operation)]))
        (result,) = answer.filter_results
        assert not result.error_code
        assert not any(matching.error_code for matching in result.matching_acls)
        return {matching.acl.operation_type for matching in result.matching_acls}

    def _filter(self, operation: int) -> pb.PbAclFilter:
        return pb.PbAclFilter(
            resource_name=self._resource, resource_type=TABLE, operation_type=operation, permission_type=ANY
        )

    def _call(self, api_key: int, request: Any) -> Any:
        with WireClient.connect(self._server.target.bootstrap_servers) as client:
            return client.call(api_key, request)


async def when_allowed(call: Call) -> Any:
    """The result of a call, as soon as it is permitted."""
    results: list[Any] = []

    async def succeeds() -> bool:
        try:
            results.append(await call())
        except FlussError as error:
            if error.error_code not in (DENIED, ErrorCode.TABLE_NOT_EXIST):
                raise
            return False
        return True

    await eventually(succeeds, "the permission has arrived")
    return results[0]


async def is_denied(call: Call) -> None:
    with pytest.raises(FlussError) as caught:
        await call()
    assert caught.value.error_code == DENIED, caught.value


def test_permissions_are_given_listed_and_taken(server: RestartableServer, table_name: str) -> None:
    with fluss.FlussConnection.open(server.config()) as connection:
        ScanTable(connection, table_name, bucket_count=1)
    permissions = Permissions(server, table_name)
    assert permissions.listed() == set()
    permissions.give(READ, DESCRIBE)
    permissions.give(READ)  # again: nothing changes
    wait_until(lambda: permissions.listed() == {("alice", READ), ("alice", DESCRIBE)}, "both are listed")
    assert permissions.listed(READ) == {("alice", READ)}
    assert permissions.take(WRITE) == set()
    assert permissions.take(READ) == {READ}
    wait_until(lambda: permissions.listed() == {("alice", DESCRIBE)}, "one is left")
    assert permissions.take(ANY) == {DESCRIBE}
    wait_until(lambda: permissions.listed() == set(), "none is left")


def test_log_tables_need_read_and_write(server: RestartableServer, table_name: str) -> None:
    permissions = Permissions(server, table_name)
    with (
        fluss.FlussConnection.open(server.config()) as connection,
        fluss.FlussConnection.open(server.target.sasl_config("alice")) as of_alice,
    ):
        table = ScanTable(connection, table_name, bucket_count=1)
        table.write(rows_of(range(5)))

        async def body() -> None:
            admin = of_alice.get_admin()
            await is_denied(lambda: admin.get_table_info(table.path))
            await is_denied(lambda: admin.drop_table(table.path))
            assert table_name not in await admin.list_tables("fluss")
            permissions.give(DESCRIBE)
            opened = await when_allowed(lambda: of_alice.get_table(table.path))
            writer = opened.new_append().create_writer()
            row = {"id": 5, "name": "five", "score": 2.5}
            await is_denied(lambda: opened.to_arrow())
            await is_denied(lambda: writer.append(row).wait())
            permissions.give(READ)
            assert (await when_allowed(opened.to_arrow)).num_rows == 5
            await is_denied(lambda: writer.append(row).wait())
            permissions.give(WRITE)
            await when_allowed(lambda: writer.append(row).wait())
            assert (await opened.to_arrow()).num_rows == 6
            await is_denied(lambda: admin.drop_table(table.path))

        asyncio.run(body())


def test_primary_key_tables_need_read_and_write(server: RestartableServer, table_name: str) -> None:
    permissions = Permissions(server, table_name)
    with (
        fluss.FlussConnection.open(server.config()) as connection,
        fluss.FlussConnection.open(server.target.sasl_config("alice")) as of_alice,
    ):
        table = KvTable(connection, table_name, bucket_count=1)
        table.write([user(1)])

        async def body() -> None:
            permissions.give(DESCRIBE)
            opened = await when_allowed(lambda: of_alice.get_table(table.path))
            writer, lookuper = opened.new_upsert().create_writer(), opened.new_lookup().create_lookuper()
            await is_denied(lambda: lookuper.lookup((1,)))
            if not server.target.is_apache:  # there it asks for no row once a snapshot has them all
                await is_denied(lambda: opened.to_arrow())
            await is_denied(lambda: writer.upsert(user(2)).wait())
            await is_denied(lambda: writer.delete((1,)).wait())
            permissions.give(READ)
            assert await when_allowed(lambda: lookuper.lookup((1,))) == user(1)
            assert (await opened.to_arrow()).to_pylist() == [user(1)]
            await is_denied(lambda: writer.delete((1,)).wait())
            permissions.give(WRITE)
            await when_allowed(lambda: writer.upsert(user(2)).wait())
            await writer.delete((1,)).wait()
            assert (await opened.to_arrow()).to_pylist() == [user(2)]

        asyncio.run(body())


def test_a_super_user_needs_none(server: RestartableServer, table_name: str) -> None:
    with fluss.FlussConnection.open(server.target.sasl_config("admin")) as connection:
        table = ScanTable(connection, table_name, pa.schema([("id", pa.int32())]), bucket_count=1)
        table.write([{"id": 1}])
        assert table.read().column("id").to_pylist() == [1]
        asyncio.run(connection.get_admin().drop_table(table.path))
