"""Calls of operators as coroutines of the I/O thread: permissions, server tags, rebalances, leases."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from fluss.client.net.cluster import Cluster
from fluss.errors import FlussError
from fluss.model.rebalancing import RebalanceGoal, ServerTag
from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol.api_keys import ApiKey
from fluss.values.acls import Acl, acl_filter
from fluss.values.rebalancing import RebalanceProgress, progress_from_message
from fluss.values.wire_names import word_of


class ClusterCalls:
    """One method per call."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    # ---- permissions ----

    async def create_acls(self, acls: Sequence[Acl]) -> None:
        request = pb.CreateAclsRequest(acl=[acl.to_message() for acl in acls])
        answer = await self._cluster.call_coordinator(ApiKey.CREATE_ACLS, request)
        _raise_failed("created", answer.aclRes)

    async def list_acls(self, chosen: pb.PbAclFilter) -> list[Acl]:
        request = pb.ListAclsRequest(acl_filter=chosen)
        answer = await self._cluster.call_coordinator(ApiKey.LIST_ACLS, request, idempotent=True)
        return [Acl.from_message(info) for info in answer.acl]

    async def drop_acls(self, chosen: pb.PbAclFilter) -> list[Acl]:
        """Return the permissions that were dropped."""
        answer = await self._cluster.call_coordinator(ApiKey.DROP_ACLS, pb.DropAclsRequest(acl_filter=[chosen]))
        dropped = []
        for result in answer.filter_results:
            if result.error_code:
                raise FlussError(result.error_message, result.error_code)
            _raise_failed("dropped", result.matching_acls)
            dropped += [Acl.from_message(matching.acl) for matching in result.matching_acls]
        return dropped

    # ---- servers ----

    async def add_server_tag(self, server_ids: Iterable[int], tag: ServerTag) -> None:
        request = pb.AddServerTagRequest(server_ids=server_ids, server_tag=tag)
        await self._cluster.call_coordinator(ApiKey.ADD_SERVER_TAG, request)

    async def remove_server_tag(self, server_ids: Iterable[int], tag: ServerTag) -> None:
        request = pb.RemoveServerTagRequest(server_ids=server_ids, server_tag=tag)
        await self._cluster.call_coordinator(ApiKey.REMOVE_SERVER_TAG, request)

    async def rebalance(self, goals: Iterable[RebalanceGoal]) -> str:
        answer = await self._cluster.call_coordinator(ApiKey.REBALANCE, pb.RebalanceRequest(goals=goals))
        return str(answer.rebalance_id)

    async def list_rebalance_progress(self, rebalance_id: str | None) -> RebalanceProgress | None:
        request = pb.ListRebalanceProgressRequest(rebalance_id=rebalance_id)
        answer = await self._cluster.call_coordinator(ApiKey.LIST_REBALANCE_PROGRESS, request, idempotent=True)
        return progress_from_message(answer)

    async def cancel_rebalance(self, rebalance_id: str | None) -> None:
        request = pb.CancelRebalanceRequest(rebalance_id=rebalance_id)
        await self._cluster.call_coordinator(ApiKey.CANCEL_REBALANCE, request)

    async def drop_kv_snapshot_lease(self, lease_id: str) -> None:
        request = pb.DropKvSnapshotLeaseRequest(lease_id=lease_id)
        await self._cluster.call_coordinator(ApiKey.DROP_KV_SNAPSHOT_LEASE, request)


def acls_of(acls: Acl | Iterable[Acl]) -> list[Acl]:
    """A list from one permission or several."""
    found = [acls] if isinstance(acls, Acl) else list(acls)
    for acl in found:
        if not isinstance(acl, Acl):
            raise FlussError(f"acls must be like Acl('User:alice', 'read', 'cluster.shop.orders'), got {acl!r}")
    if not found:
        raise FlussError("acls must not be empty")
    return found


def acls_to_drop(
    principal: str | None, operation: str | None, resource: str | None, host: str | None
) -> pb.PbAclFilter:
    """A filter with at least one condition: an empty one, given by mistake, would drop all permissions."""
    if principal is None and operation is None and resource is None and host is None:
        raise FlussError("refusing to drop all ACLs: pass principal, operation, resource or host, or operation='any'")
    return acl_filter(principal, operation, resource, host)


def server_ids_of(server_ids: int | Iterable[int]) -> list[int]:
    """A list from one server id or several."""
    found = [server_ids] if isinstance(server_ids, int) else list(server_ids)
    if not found or not all(isinstance(server_id, int) and not isinstance(server_id, bool) for server_id in found):
        raise FlussError(f"server_ids must be a non-empty list of ints such as [0, 1], got {server_ids!r}")
    return found


def tag_of(text: str) -> ServerTag:
    """`permanent_offline` or `temporary_offline`."""
    return word_of("server tag", ServerTag, text)


def goals_of(goals: Iterable[str]) -> list[RebalanceGoal]:
    """The goals in order of priority."""
    if isinstance(goals, str):
        raise FlussError(f"goals must be a list of names, got the string {goals!r}; write [{goals!r}]")
    found = [word_of("goal", RebalanceGoal, goal) for goal in goals]
    if not found:
        known = ", ".join(goal.name.lower() for goal in RebalanceGoal)
        raise FlussError(f"goals must not be empty; choose from {known}")
    return found


def _raise_failed(verb: str, results: Sequence[Any]) -> None:
    """Raise for failures. Known servers do all or nothing; the protocol allows a part, which the error names."""
    failed = [result for result in results if result.error_code]
    if failed:
        reasons = "; ".join(f"{Acl.from_message(result.acl)}: {result.error_message}" for result in failed)
        others = f", the other {len(results) - len(failed)} were" if len(failed) < len(results) else ""
        raise FlussError(f"not {verb}{others}: {reasons}", failed[0].error_code)
