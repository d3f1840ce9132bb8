"""The numbers and names of permissions (ACLs), shared by server and client."""

from __future__ import annotations

from enum import IntEnum

WILDCARD = "*"
CLUSTER_NAME = "fluss-cluster"


class ResourceType(IntEnum):
    """The kind of resource an ACL applies to; ANY is for filters only."""

    ANY = 1
    CLUSTER = 2
    DATABASE = 3
    TABLE = 4


class Operation(IntEnum):
    """The operation an ACL allows; ANY is for filters only, ALL includes all others."""

    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DROP = 6
    ALTER = 7
    DESCRIBE = 8


class Permission(IntEnum):
    """The effect of an ACL. ALLOW is the only one: what no ACL allows is denied. ANY is for filters only."""

    ANY = 1
    ALLOW = 2
