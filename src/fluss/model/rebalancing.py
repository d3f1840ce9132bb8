"""The numbers of server tags and rebalances, as server and client both know them."""

from __future__ import annotations

from enum import IntEnum


class ServerTag(IntEnum):
    """What an operator says of a tablet server. A permanently offline one gets no new replicas."""

    PERMANENT_OFFLINE = 0
    TEMPORARY_OFFLINE = 1


class RebalanceGoal(IntEnum):
    """What shall be even after a rebalance."""

    REPLICA_DISTRIBUTION = 0
    LEADER_DISTRIBUTION = 1
    RACK_AWARE = 2


class RebalanceStatus(IntEnum):
    """How far a rebalance, or one bucket of it, is."""

    NOT_STARTED = 0
    REBALANCING = 1
    FAILED = 2
    COMPLETED = 3
    CANCELED = 4
    TIMEOUT = 5
