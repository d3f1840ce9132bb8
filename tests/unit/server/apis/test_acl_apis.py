"""CREATE_ACLS, LIST_ACLS, DROP_ACLS."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol.api_keys import ApiKey
from fluss.server.catalog.records import Acl
from fluss.server.runtime import time_slices
from tests.support.harness.coordinator import CoordinatorHarness
from tools.servers.messages import path, table_document

ROOT: dict[str, Any] = {"principal_name": "root"}
ALICE: dict[str, Any] = {"principal_name": "alice"}


def acl(**changes: Any) -> pb.PbAclInfo:
    fields: dict[str, Any] = {
        "resource_name": "db.t",
        "resource_type": 4,
        "principal_name": "alice",
        "principal_type": "User",
        "host": "*",
        "operation_type": 3,
        "permission_type": 2,
    }
    return pb.PbAclInfo(**(fields | changes))


def acl_filter(**changes: Any) -> pb.PbAclFilter:
    return pb.PbAclFilter(**({"resource_type": 1, "operation_type": 1, "permission_type": 1} | changes))


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[CoordinatorHarness]:
    harness = CoordinatorHarness(tmp_path, authorizer_enabled=True, super_users=frozenset({("User", "root")}))
    yield harness
    harness.close()


def create(harness: CoordinatorHarness, *acls: pb.PbAclInfo, **context: Any) -> list[int]:
    answer = harness.call(ApiKey.CREATE_ACLS, pb.CreateAclsRequest(acl=acls), **context)
    assert [result.acl for result in answer.aclRes] == list(acls)
    assert all(result.HasField("error_code") for result in answer.aclRes)
    return [result.error_code for result in answer.aclRes]


def listed(harness: CoordinatorHarness, wanted: pb.PbAclFilter | None = None, **context: Any) -> list[str]:
    request = pb.ListAclsRequest(acl_filter=wanted or acl_filter())
    answer = harness.call(ApiKey.LIST_ACLS, request, tablet=True, **(context or ROOT))
    return sorted(f"{found.principal_name}:{found.resource_name}:{found.operation_type}" for found in answer.acl)


@pytest.mark.parametrize("key", [ApiKey.CREATE_ACLS, ApiKey.DROP_ACLS])
def test_others_come_in_between(guarded: CoordinatorHarness, monkeypatch: pytest.MonkeyPatch, key: ApiKey) -> None:
    monkeypatch.setattr(time_slices, "TIME_SLICE_SECONDS", 0.0)  # Every entry has its own time slice.
    request: Any = pb.CreateAclsRequest(acl=[acl(resource_name=f"db.t{number}") for number in range(20)])
    if key is ApiKey.DROP_ACLS:
        request = pb.DropAclsRequest(acl_filter=[acl_filter()] * 20)
    assert guarded.loop_steps_during(key, request, **ROOT) >= 20


def test_without_authorizer(tmp_path: Path) -> None:
    harness = CoordinatorHarness(tmp_path)
    harness.refuses(47, ApiKey.CREATE_ACLS, pb.CreateAclsRequest())
    harness.refuses(47, ApiKey.DROP_ACLS, pb.DropAclsRequest())
    harness.refuses(47, ApiKey.LIST_ACLS, pb.ListAclsRequest(acl_filter=acl_filter()), tablet=True)
    harness.close()


def test_create_list_drop(guarded: CoordinatorHarness) -> None:
    first, second = acl(), acl(principal_name="bob", operation_type=4, resource_name="db", resource_type=3)
    assert create(guarded, first, second, first, **ROOT) == [0, 0, 0]
    assert listed(guarded) == ["alice:db.t:3", "bob:db:4"]
    drop = pb.DropAclsRequest(acl_filter=[acl_filter(operation_type=3), acl_filter(resource_name="none")])
    answer = guarded.call(ApiKey.DROP_ACLS, drop, **ROOT)
    assert [[match.acl for match in result.matching_acls] for result in answer.filter_results] == [[first], []]
    assert not answer.filter_results[0].matching_acls[0].HasField("error_code")
    assert listed(guarded) == ["bob:db:4"]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (acl_filter(), ["a", "b", "c"]),
        (acl_filter(resource_type=3), ["b"]),
        (acl_filter(resource_name="db.t"), ["a", "c"]),
        (acl_filter(operation_type=8), ["c"]),
        (acl_filter(permission_type=2), ["a", "b", "c"]),
        (acl_filter(host="10.0.0.1"), ["c"]),
        (acl_filter(principal_name="a"), ["a", "b", "c"]),
        (acl_filter(principal_name="a", principal_type="User"), ["a"]),
        (acl_filter(resource_name="nothing"), []),
    ],
)
def test_filters(guarded: CoordinatorHarness, wanted: pb.PbAclFilter, found: list[str]) -> None:
    create(
        guarded,
        acl(principal_name="a"),
        acl(principal_name="b", resource_type=3, resource_name="db"),
        acl(principal_name="c", operation_type=8, host="10.0.0.1"),
        **ROOT,
    )
    assert [text.partition(":")[0] for text in listed(guarded, wanted)] == found


@pytest.mark.parametrize(
    "bad",
    [
        {"resource_type": 1},
        {"resource_type": 9},
        {"operation_type": 1},
        {"operation_type": 99},
        {"permission_type": 1},
        {"resource_type": 2, "resource_name": "other"},
        {"resource_type": 4, "resource_name": "no-database"},
    ],
)
def test_bad_acls(guarded: CoordinatorHarness, bad: dict[str, Any]) -> None:
    guarded.refuses(-1, ApiKey.CREATE_ACLS, pb.CreateAclsRequest(acl=[acl(), acl(**bad)]), **ROOT)
    assert listed(guarded) == []


def test_callers_with_all_may_grant_and_revoke(guarded: CoordinatorHarness) -> None:
    def is_refused(*acls: pb.PbAclInfo) -> None:
        guarded.refuses(48, ApiKey.CREATE_ACLS, pb.CreateAclsRequest(acl=acls), **ALICE)

    def drop(*filters: pb.PbAclFilter) -> pb.DropAclsRequest:
        return pb.DropAclsRequest(acl_filter=filters)

    to_bob, of_bob = acl(principal_name="bob"), acl_filter(principal_name="bob", principal_type="User")
    is_refused(to_bob)
    create(guarded, acl(operation_type=2), **ROOT)
    is_refused(to_bob)  # ALL on the table is not enough, its database counts
    create(guarded, acl(operation_type=2, resource_type=3, resource_name="db"), **ROOT)
    is_refused(to_bob, acl(resource_name="other.t"))
    is_refused(to_bob, acl(resource_name="*"))
    assert "bob:db.t:3" not in listed(guarded)  # all or nothing
    assert create(guarded, to_bob, **ALICE) == [0]
    carol = acl(principal_name="carol", resource_type=2, resource_name="fluss-cluster")
    create(guarded, carol, **ROOT)
    guarded.refuses(48, ApiKey.DROP_ACLS, drop(of_bob, acl_filter(resource_type=2)), **ALICE)
    assert {"bob:db.t:3", "carol:fluss-cluster:3"} <= set(listed(guarded))
    answer = guarded.call(ApiKey.DROP_ACLS, drop(of_bob), **ALICE)
    assert not answer.filter_results[0].matching_acls[0].HasField("error_code")
    assert "bob:db.t:3" not in listed(guarded)


def test_acls_are_visible_with_their_resource(guarded: CoordinatorHarness) -> None:
    create(guarded, acl(), acl(resource_name="db.u", principal_name="bob"), acl(principal_name="bob"), **ROOT)
    assert listed(guarded, **ALICE) == ["alice:db.t:3", "bob:db.t:3"]


def test_permissions_end_with_their_table(tmp_path: Path) -> None:
    """Otherwise a user who could read the old table could read a new one of that name, even another user's."""
    harness = CoordinatorHarness(tmp_path, authorizer_enabled=True)
    inside: dict[str, Any] = {"is_internal": True}
    alice: dict[str, Any] = {"principal_name": "alice"}

    def make(database: str, name: str) -> None:
        create = pb.CreateDatabaseRequest(database_name=database, ignore_if_exists=True)
        harness.call(ApiKey.CREATE_DATABASE, create, **inside)
        table = harness.create_table_request(name, table_document(), database=database, ignore=True)
        harness.call(ApiKey.CREATE_TABLE, table, **inside)

    def sees(database: str, name: str) -> bool:
        request = pb.TableExistsRequest(table_path=path(name, database))
        both = {
            bool(harness.call(ApiKey.TABLE_EXISTS, request, tablet=tablet, **alice).exists) for tablet in (True, False)
        }
        return both.pop()

    resources = [(4, "db.a"), (4, "db.b"), (4, "db_c.a"), (3, "db_c")]
    for database, name in (("db", "a"), ("db", "b"), ("db_c", "a")):
        make(database, name)
    harness.catalog.store.acls.add([Acl(kind, name, "User", "alice", "*", 3, 2) for kind, name in resources])
    assert sees("db", "a")
    harness.call(
        ApiKey.DROP_TABLE, pb.DropTableRequest(table_path=path("a", "db"), ignore_if_not_exists=False), **inside
    )
    make("db", "a")
    assert [sees("db", "a"), sees("db", "b"), sees("db_c", "a")] == [False, True, True]
    drop = pb.DropDatabaseRequest(database_name="db_c", ignore_if_not_exists=False, cascade=True)
    harness.call(ApiKey.DROP_DATABASE, drop, **inside)
    make("db_c", "a")
    assert [sees("db", "b"), sees("db_c", "a")] == [True, False]
    assert [acl.resource_name for acl in harness.catalog.store.acls.all()] == ["db.b"]
    harness.close()


def test_filters_that_match_the_same_permissions_repeatedly(guarded: CoordinatorHarness) -> None:
    """16,000 of them made an answer of gigabytes, and the coordinator hung until it was killed."""
    create(guarded, *[acl(resource_name=f"db.t{number}") for number in range(100)], **ROOT)
    before = listed(guarded)
    many = pb.DropAclsRequest(acl_filter=[acl_filter()] * 1_000)
    assert "split them over several requests" in guarded.refuses(3, ApiKey.DROP_ACLS, many, **ROOT)
    guarded.refuses(48, ApiKey.DROP_ACLS, many, **ALICE)
    assert listed(guarded) == before
    few = pb.DropAclsRequest(acl_filter=[acl_filter()] * 3)
    assert [len(result.matching_acls) for result in guarded.call(ApiKey.DROP_ACLS, few, **ROOT).filter_results] == [
        100
    ] * 3
    assert listed(guarded) == []


def test_strings_of_a_permission_are_limited(guarded: CoordinatorHarness) -> None:
    for field in ("resource_name", "principal_name", "principal_type", "host"):
        request = pb.CreateAclsRequest(acl=[acl(**{field: "db." + "x" * 1_000})])
        assert "at most 1000 characters, got 1003" in guarded.refuses(-1, ApiKey.CREATE_ACLS, request, **ROOT)
