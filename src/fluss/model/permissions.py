"""The numbers and names of permissions (ACLs): what server and client both know of them."""

from __future__ import annotations

from enum import IntEnum

WILDCARD = "*"
CLUSTER_NAME = "fluss-cluster"


class ResourceType(IntEnum):
    """What an ACL is about; ANY only in filters."""

    ANY = 1
    CLUSTER = 2
    DATABASE = 3
    TABLE = 4


class Operation(IntEnum):
    """What an ACL allows; ANY only in filters, ALL contains every other."""

    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DROP = 6
    ALTER = 7
    DESCRIBE = 8


class Permission(IntEnum):
    """There is no denial."""

    ANY = 1
    ALLOW = 2
