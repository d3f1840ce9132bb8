"""The numbers of server tags and rebalances, shared by server and client."""

from __future__ import annotations

from enum import IntEnum


class ServerTag(IntEnum):
    """The tag by which an operator marks a tablet server as leaving. A permanently offline one gets no new replicas."""

    PERMANENT_OFFLINE = 0
    TEMPORARY_OFFLINE = 1


class RebalanceGoal(IntEnum):
    """The things that a rebalance distributes evenly over servers."""

    REPLICA_DISTRIBUTION = 0
    LEADER_DISTRIBUTION = 1
    RACK_AWARE = 2


class RebalanceStatus(IntEnum):
    """The state of a rebalance, or of one bucket in it."""

    NOT_STARTED = 0
    REBALANCING = 1
    FAILED = 2
    COMPLETED = 3
    CANCELED = 4
    TIMEOUT = 5
