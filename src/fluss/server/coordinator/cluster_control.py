"""Run-time options, server tags and rebalancing.

Options set at run time are stored in the catalog, so they survive restarts and every process sees them. Only options
that the server reads at run time, or that have no effect on one machine, are accepted.
Rebalancing has nothing to move on one machine: each call completes at once; only its id is kept, until the next start.
"""

from __future__ import annotations

import uuid

from fluss.errors import ErrorCode, FlussError
from fluss.model.option_values import enum_parser
from fluss.model.properties import LAKE_FORMATS
from fluss.model.rebalancing import RebalanceGoal, RebalanceStatus, ServerTag
from fluss.protocol import fluss_api_pb2 as pb
from fluss.server.apis.environment import Environment
from fluss.server.config.options import OPTIONS
from fluss.server.config.server_config import parse_value
from fluss.server.coordinator.tables.config_changes import APPEND, DELETE, SET, SUBTRACT
from fluss.server.runtime.handlers import RequestContext

_DYNAMIC_PREFIX = "datalake."
_DYNAMIC_KEYS = frozenset(
    {
        "kv.leader-replica.memory-reserved",
        "kv.rocksdb.shared-rate-limiter.bytes-per-sec",
        "kv.snapshot.interval",
        "log.replica.min-in-sync-replicas-number",
        "server.data-disk.write-limit-ratio",
        "server.data-disk.write-recover-ratio",
    }
)
_parse_lake_format = enum_parser(LAKE_FORMATS)


class ClusterControl:
    """Handlers for requests that change the cluster as a whole."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._last_rebalance_id: str | None = None

    # Options

    def alter_cluster_configs(
        self, context: RequestContext, request: pb.AlterClusterConfigsRequest
    ) -> pb.AlterClusterConfigsResponse:
        """Apply all changes, or none; an empty list succeeds."""
        self._environment.catalog.refresh()
        changes = {change.config_key: _checked_option(change) for change in request.alter_configs}
        if changes:
            self._environment.catalog.store.settings.change_config(changes)
        return pb.AlterClusterConfigsResponse()

    # Tags

    def add_server_tag(self, context: RequestContext, request: pb.AddServerTagRequest) -> pb.AddServerTagResponse:
        self._check_tag_request(list(request.server_ids), request.server_tag)
        tags = self._environment.catalog.server_tags
        for server_id in request.server_ids:
            if tags.get(server_id, request.server_tag) != request.server_tag:
                raise FlussError(
                    f"tablet server {server_id} already has the tag {ServerTag(tags[server_id]).name}; remove it first",
                    ErrorCode.SERVER_TAG_ALREADY_EXIST_EXCEPTION,
                )
        self._environment.catalog.store.settings.change_tags(dict.fromkeys(request.server_ids, request.server_tag))
        return pb.AddServerTagResponse()

    def remove_server_tag(
        self, context: RequestContext, request: pb.RemoveServerTagRequest
    ) -> pb.RemoveServerTagResponse:
        self._check_tag_request(list(request.server_ids), request.server_tag)
        tags = self._environment.catalog.server_tags
        for server_id in request.server_ids:
            if tags.get(server_id, request.server_tag) != request.server_tag:
                raise FlussError(
                    f"tablet server {server_id} does not have the tag {ServerTag(request.server_tag).name}; "
                    f"it has {ServerTag(tags[server_id]).name}",
                    ErrorCode.SERVER_TAG_NOT_EXIST_EXCEPTION,
                )
        self._environment.catalog.store.settings.change_tags(dict.fromkeys(request.server_ids, None))
        return pb.RemoveServerTagResponse()

    def _check_tag_request(self, server_ids: list[int], tag: int) -> None:
        self._environment.catalog.refresh()
        if tag not in set(ServerTag):
            raise FlussError(
                f"server tag must be 0 (permanently offline) or 1 (temporarily offline), got {tag}",
                ErrorCode.UNKNOWN_SERVER_ERROR,
            )
        count = self._environment.topology.tablet_count
        for server_id in server_ids:
            if not 0 <= server_id < count:
                raise FlussError(
                    f"tablet server {server_id} does not exist; the ids are 0 to {count - 1}",
                    ErrorCode.SERVER_NOT_EXIST_EXCEPTION,
                )

    # Rebalancing

    def rebalance(self, context: RequestContext, request: pb.RebalanceRequest) -> pb.RebalanceResponse:
        self._environment.catalog.refresh()
        for goal in request.goals:
            if goal not in set(RebalanceGoal):
                raise FlussError(
                    f"rebalance goal must be 0 (replicas), 1 (leaders) or 2 (racks), got {goal}",
                    ErrorCode.UNKNOWN_SERVER_ERROR,
                )
        self._last_rebalance_id = str(uuid.uuid4())
        return pb.RebalanceResponse(rebalance_id=self._last_rebalance_id)

    def list_rebalance_progress(
        self, context: RequestContext, request: pb.ListRebalanceProgressRequest
    ) -> pb.ListRebalanceProgressResponse:
        self._environment.catalog.refresh()
        if self._last_rebalance_id is None:
            return pb.ListRebalanceProgressResponse()
        self._check_rebalance_id(request)
        return pb.ListRebalanceProgressResponse(
            rebalance_id=self._last_rebalance_id, rebalance_status=RebalanceStatus.COMPLETED
        )

    def cancel_rebalance(
        self, context: RequestContext, request: pb.CancelRebalanceRequest
    ) -> pb.CancelRebalanceResponse:
        self._environment.catalog.refresh()
        if self._last_rebalance_id is not None:
            self._check_rebalance_id(request)
        return pb.CancelRebalanceResponse()

    def _check_rebalance_id(self, request: pb.ListRebalanceProgressRequest | pb.CancelRebalanceRequest) -> None:
        if request.HasField("rebalance_id") and request.rebalance_id != self._last_rebalance_id:
            raise FlussError(
                f"unknown rebalance {request.rebalance_id!r}; the last one was {self._last_rebalance_id!r}",
                ErrorCode.NO_REBALANCE_IN_PROGRESS_EXCEPTION,
            )


def _checked_option(change: pb.PbAlterConfig) -> str | None:
    """Return the new value of an option, None to remove it; code 64 if it cannot be changed at run time."""
    key = change.config_key
    if key not in _DYNAMIC_KEYS and not key.startswith(_DYNAMIC_PREFIX):
        raise _refused(
            f"option {key!r} cannot be changed at run time; set it in the server's configuration and restart. "
            f"Options that can be changed are {_DYNAMIC_PREFIX}* and {', '.join(sorted(_DYNAMIC_KEYS))}"
        )
    if change.op_type in (APPEND, SUBTRACT):
        raise _refused(f"option {key!r} is neither a list nor a map; use SET or DELETE")
    if change.op_type == DELETE:
        return None
    if change.op_type != SET or not change.HasField("config_value"):
        raise _refused(f"option {key!r}: SET requires a value; operations are 0 (SET) to 3 (SUBTRACT)")
    try:
        if key == "datalake.format":
            return _parse_lake_format(change.config_value)
        if key in OPTIONS:
            parse_value(OPTIONS[key], change.config_value)
    except (ValueError, FlussError) as error:
        raise _refused(f"option {key!r}: {error}") from None
    return change.config_value


def _refused(message: str) -> FlussError:
    return FlussError(message, ErrorCode.CONFIG_EXCEPTION)
