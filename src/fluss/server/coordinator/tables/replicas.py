"""Checks that the tablets of this server can store a new table or partition."""

from __future__ import annotations

from fluss.errors import ErrorCode, FlussError
from fluss.model.descriptor import TableDescriptor
from fluss.model.properties import REPLICATION_FACTOR
from fluss.model.rebalancing import ServerTag
from fluss.server.apis.environment import Environment
from fluss.server.coordinator.tables.table_defaults import typed


def check_placement(environment: Environment, descriptor: TableDescriptor) -> None:
    """Raise code 17 for more replicas than usable tablets, -1 for a table without buckets."""
    tags = environment.catalog.server_tags
    servers = range(environment.topology.tablet_count)
    usable = sum(tags.get(server_id) != ServerTag.PERMANENT_OFFLINE for server_id in servers)
    factor = typed(descriptor.properties, REPLICATION_FACTOR)
    if factor > usable:
        raise FlussError(
            f"{REPLICATION_FACTOR}={factor} is more than the {usable} usable tablet servers; "
            "use 1: on one machine a second replica would share the disk anyway",
            ErrorCode.INVALID_REPLICATION_FACTOR,
        )
    assert descriptor.bucket_count is not None
    if descriptor.bucket_count <= 0:
        raise FlussError(
            f"bucket count must be at least 1, got {descriptor.bucket_count}", ErrorCode.UNKNOWN_SERVER_ERROR
        )
