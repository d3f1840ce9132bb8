"""`Acl`: a permission as users write it, and its form on the wire.

A resource is written from the cluster down, which shows its kind: `cluster`, `cluster.shop` (a database),
`cluster.shop.orders` (a table); `cluster.*` is every database and `cluster.*.*` every table.
"""

from __future__ import annotations

from dataclasses import dataclass

from fluss.errors import FlussError
from fluss.model.permissions import CLUSTER_NAME, WILDCARD, Operation, Permission, ResourceType
from fluss.protocol import fluss_api_pb2 as pb
from fluss.values.wire_names import word_for, word_of

_CLUSTER = "cluster"
_EVERYBODY = f"{WILDCARD}:{WILDCARD}"
_EVERY_TABLE = f"{_CLUSTER}.{WILDCARD}.{WILDCARD}"


@dataclass(frozen=True)
class Acl:
    """A permission: `principal` may do `operation` on `resource` from `host`. Anything else is denied.

    A principal is `User:alice`, or `*` for everyone. Operations are all, read, write, create, drop, alter and describe.
    A permission on the cluster or on a database includes everything in it.

    >>> Acl("User:alice", "read", "cluster.shop.orders")
    Acl(principal='User:alice', operation='read', resource='cluster.shop.orders', host='*')
    """

    principal: str
    operation: str
    resource: str
    host: str = WILDCARD

    def __post_init__(self) -> None:
        """Store the operation in lower case, so that equal permissions compare equal."""
        object.__setattr__(self, "operation", str(self.operation).lower())

    def to_message(self) -> pb.PbAclInfo:
        """The message for CREATE_ACLS; FlussError for values that no server accepts."""
        kind, name = _resource(self.resource)
        principal_type, principal_name = _principal(self.principal)
        operation = _operation(self.operation)
        if operation == Operation.ANY:
            raise FlussError("operation must not be 'any', which is for filters; use 'all' to allow everything")
        return pb.PbAclInfo(
            resource_name=name,
            resource_type=kind,
            principal_name=principal_name,
            principal_type=principal_type,
            host=_host(self.host),
            operation_type=operation,
            permission_type=Permission.ALLOW,
        )

    @classmethod
    def from_message(cls, info: pb.PbAclInfo) -> Acl:
        """A permission from a LIST_ACLS answer, which another client may have created."""
        principal = f"{info.principal_type}:{info.principal_name}"
        return cls(
            WILDCARD if principal == _EVERYBODY else principal,
            word_for(Operation, info.operation_type),
            _resource_text(info.resource_type, info.resource_name),
            info.host,
        )


def acl_filter(principal: str | None, operation: str | None, resource: str | None, host: str | None) -> pb.PbAclFilter:
    """The filter of LIST_ACLS and DROP_ACLS; a part that is None matches every value."""
    chosen = pb.PbAclFilter(
        resource_type=ResourceType.ANY, operation_type=Operation.ANY, permission_type=Permission.ANY
    )
    if principal is not None:
        chosen.principal_type, chosen.principal_name = _principal(principal)
    if operation is not None:
        chosen.operation_type = _operation(operation)
    if resource is not None:
        chosen.resource_type, chosen.resource_name = _resource(resource)
    if host is not None:
        chosen.host = _host(host)
    return chosen


def _operation(text: str) -> Operation:
    return word_of("operation", Operation, text)


def _principal(text: str) -> tuple[str, str]:
    """The type and the name in a principal: `User:alice` -> `("User", "alice")`."""
    if text == WILDCARD:
        return WILDCARD, WILDCARD
    kind, colon, name = text.partition(":") if isinstance(text, str) else ("", "", "")
    if not (colon and kind and name):
        raise FlussError(f"principal must be 'Type:name' such as 'User:alice', or '*' for everyone, got {text!r}")
    return kind, name


def _resource(text: str) -> tuple[ResourceType, str]:
    """The kind and the name that a resource has on the wire."""
    root, *names = text.split(".") if isinstance(text, str) else ("",)
    if root == _CLUSTER and all(names):
        if not names:
            return ResourceType.CLUSTER, CLUSTER_NAME
        if len(names) == 1:
            return ResourceType.DATABASE, names[0]
        if text == _EVERY_TABLE:
            return ResourceType.TABLE, WILDCARD
        if len(names) == 2 and WILDCARD not in names:
            return ResourceType.TABLE, ".".join(names)
    raise FlussError(
        "resource must be 'cluster', 'cluster.database' or 'cluster.database.table' ('cluster.*' is every database, "
        f"{_EVERY_TABLE!r} every table), got {text!r}"
    )


def _resource_text(kind: int, name: str) -> str:
    if kind == ResourceType.CLUSTER:
        return _CLUSTER
    if kind == ResourceType.TABLE and name == WILDCARD:
        return _EVERY_TABLE
    return f"{_CLUSTER}.{name}"


def _host(text: str) -> str:
    if not isinstance(text, str) or not text:
        raise FlussError(f"host must be the address of a client, or '*' for any, got {text!r}")
    return text
