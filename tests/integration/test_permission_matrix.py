"""The matrix of permissions in docs/security.md, run: every user sends every request about every database."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from google.protobuf.message import Message

import fluss
from fluss.errors import ErrorCode, FlussError
from fluss.model.permissions import CLUSTER_NAME, ResourceType
from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol.api_keys import ApiKey
from fluss.server.network.dispatch import Dispatcher
from fluss.server.process.embedded import EmbeddedCluster
from fluss.server.security.permissions import PERMISSIONS, Refusal
from tools.generate_permissions import MINE, OTHER, PATH, USERS, is_allowed, render
from tools.servers.logins import TWO_LISTENERS, jaas_config
from tools.servers.messages import int_column, path, table_document
from tools.servers.permission_requests import ALLOW, REQUESTS, TABLE, offsets, victims_acl
from tools.servers.wire_client import WireClient

# Tried elsewhere: the login itself, the keys of an object store, and a lease, which needs a snapshot.
ELSEWHERE = {
    ApiKey.API_VERSIONS,
    ApiKey.AUTHENTICATE,
    ApiKey.GET_FILESYSTEM_SECURITY_TOKEN,
    ApiKey.DROP_KV_SNAPSHOT_LEASE,
}
DATABASES = (MINE, OTHER)

# What of an answer is left out for those who may not see it.
SEEN: dict[ApiKey, Callable[[Any, str], bool]] = {
    ApiKey.LIST_DATABASES: lambda answer, database: database in answer.database_name,
    ApiKey.DATABASE_EXISTS: lambda answer, _: bool(answer.exists),
    ApiKey.LIST_TABLES: lambda answer, _: list(answer.table_name) == [TABLE],
    ApiKey.TABLE_EXISTS: lambda answer, _: bool(answer.exists),
    ApiKey.GET_METADATA: lambda answer, _: len(answer.table_metadata) == 1,
    ApiKey.GET_PRODUCER_OFFSETS: lambda answer, _: len(answer.table_offsets) == 1,
    ApiKey.LIST_ACLS: lambda answer, _: len(answer.acl) == 1,
}


class Guarded:
    """A server with permissions, and a connection of every user to each of its roles."""

    def __init__(self, stack: ExitStack, cluster: EmbeddedCluster) -> None:
        self._stack = stack
        self.admin = stack.enter_context(WireClient.connect(cluster.bootstrap_servers))
        self.table_ids = {database: self._create(database) for database in DATABASES}
        for user, granted in USERS.items():
            if granted is not None:
                operation, resource = granted
                name = CLUSTER_NAME if resource is ResourceType.CLUSTER else MINE
                acl = victims_acl(name)
                acl.principal_name, acl.operation_type, acl.resource_type = user, operation, resource
                acl.permission_type = ALLOW
                self.admin.call(ApiKey.CREATE_ACLS, pb.CreateAclsRequest(acl=[acl]))
        address = cluster.listener_address("CLIENT")
        self.clients = {}
        for user in USERS:
            coordinator = self._logged_in(address, user)
            (node,) = coordinator.call(ApiKey.GET_METADATA, pb.MetadataRequest()).tablet_servers
            self.clients[user] = (coordinator, self._logged_in(f"{node.host}:{node.port}", user))
        self.served = [_served(client) for client in self.clients["nobody"]]

    def _create(self, database: str) -> int:
        create = pb.CreateDatabaseRequest(database_name=database, ignore_if_exists=False)
        self.admin.call(ApiKey.CREATE_DATABASE, create)
        document = table_document([int_column("a")], primary_key=["a"], bucket_count=1)
        table = pb.CreateTableRequest(table_path=path(TABLE, database), table_json=document, ignore_if_exists=False)
        self.admin.call(ApiKey.CREATE_TABLE, table)
        info = self.admin.call(ApiKey.GET_TABLE_INFO, pb.GetTableInfoRequest(table_path=path(TABLE, database)))
        return int(info.table_id)

    def _logged_in(self, address: str, user: str) -> WireClient:
        client = self._stack.enter_context(WireClient.connect(address))
        client.authenticate(user, f"{user}-secret")
        return client

    def allows(self, user: str, role: int, key: ApiKey, database: str) -> bool:
        """Whether the server lets the user do it; whatever else is wrong with the request comes after that."""
        table_id = self.table_ids[database]
        self.admin.call(ApiKey.CREATE_ACLS, pb.CreateAclsRequest(acl=[victims_acl(database)]))
        self.admin.call(ApiKey.REGISTER_PRODUCER_OFFSETS, offsets(database, table_id))
        try:
            answer = self.clients[user][role].call(key, REQUESTS[key](database, table_id))
        except FlussError as error:
            return error.error_code != ErrorCode.AUTHORIZATION_EXCEPTION
        if PERMISSIONS[key].refusal is Refusal.LEFT_OUT:
            return SEEN[key](answer, database)
        return not _has_denial(answer)


def _served(client: WireClient) -> set[ApiKey]:
    return {ApiKey(item.api_key) for item in client.api_versions().api_versions}


def _has_denial(message: Message) -> bool:
    """Whether an error 48 is anywhere in an answer."""
    for field, value in message.ListFields():
        if field.name == "error_code" and value == ErrorCode.AUTHORIZATION_EXCEPTION:
            return True
        if field.message_type is not None:
            parts = [value] if isinstance(value, Message) else value
            if any(_has_denial(part) for part in parts):
                return True
    return False


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    config = {
        **TWO_LISTENERS,
        "authorizer.enabled": "true",
        "security.sasl.plain.jaas.config": jaas_config({user: f"{user}-secret" for user in USERS}),
    }
    with ExitStack() as stack:
        cluster = stack.enter_context(fluss.embedded(tmp_path_factory.mktemp("matrix") / "data", config=config))
        yield Guarded(stack, cluster)


def test_every_key_that_is_served_has_a_permission_and_a_request(guarded: Guarded) -> None:
    served = set.union(*guarded.served)
    assert served == PERMISSIONS.keys()
    assert served - ELSEWHERE == REQUESTS.keys()


@pytest.mark.parametrize("database", DATABASES)
@pytest.mark.parametrize("user", USERS)
def test_the_matrix(guarded: Guarded, user: str, database: str) -> None:
    wrong = []
    for role, keys in enumerate(guarded.served):
        for key in sorted(keys - ELSEWHERE):
            expected = is_allowed(user, key, database)
            if guarded.allows(user, role, key, database) != expected:
                wrong.append(f"{key.name}: {'allowed' if not expected else 'refused'} by role {role}")
    assert wrong == []


# By hand, because the expectation of `test_the_matrix` comes from the very table that it tries.
WRITERS, READERS = {"writer", "owner", "operator"}, {"reader", "owner", "operator"}
PINNED: dict[int, set[str]] = {
    1002: {"owner", "operator"},  # a database is dropped
    1006: {"owner", "operator"},  # a table is dropped
    1014: WRITERS,
    1015: READERS,
    1016: WRITERS,
    1017: READERS,
    1030: WRITERS,  # lake snapshots: what they say is in the lake may expire
    1039: {"owner", "operator"},  # permissions on that database are given
    1042: WRITERS,
    1046: {"operator"},  # options of the server
    1052: WRITERS,
}


@pytest.mark.parametrize("key", [ApiKey(number) for number in PINNED], ids=lambda key: key.name)
def test_what_nobody_may_loosen(guarded: Guarded, key: ApiKey) -> None:
    for role in (role for role, keys in enumerate(guarded.served) if key in keys):
        assert {user for user in USERS if guarded.allows(user, role, key, MINE)} == PINNED[key]
        assert {user for user in USERS if guarded.allows(user, role, key, OTHER)} == {"operator"}


def test_the_matrix_in_the_document_is_in_step() -> None:
    written = PATH.read_text(encoding="utf-8")
    assert written == render(written), "run: python -m tools.generate_permissions"


def test_a_key_without_a_permission_is_not_served(monkeypatch: pytest.MonkeyPatch) -> None:
    class Forgetful:
        server_type = 1

        def apis(self) -> dict[int, Any]:
            return {ApiKey.REBALANCE: lambda context, request: pb.RebalanceResponse()}

    monkeypatch.delitem(PERMISSIONS, ApiKey.REBALANCE)
    with pytest.raises(ValueError, match="API key REBALANCE has no permission rule; declare one"):
        Dispatcher(Forgetful(), None)  # type: ignore[arg-type]
