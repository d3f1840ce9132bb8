"""Authorization: which principal may do what.

Theory. A permission (ACL) allows a principal an operation on a resource. A request on a table is allowed by a
permission on the table, on its database, or on the cluster. No ACL denies anything. `Authorizer` reads the ACLs that
its `Catalog` has loaded; callers refresh the catalog first. It keeps an index of them, which is rebuilt when the list
in the catalog has changed. All calls come from the event loop's thread.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from fluss.errors import ErrorCode, FlussError
from fluss.model.paths import TablePath
from fluss.model.permissions import CLUSTER_NAME, WILDCARD, Operation, Permission, ResourceType
from fluss.server.catalog import Catalog
from fluss.server.catalog.records import Acl
from fluss.server.config.server_config import ServerConfig
from fluss.server.runtime.handlers import RequestContext
from fluss.server.security.permissions import rule_of


class Resource(NamedTuple):
    """What an ACL protects: the cluster, a database or a table, as its type and name."""

    resource_type: ResourceType
    name: str

    def __str__(self) -> str:
        return f"{self.resource_type.name.lower()} '{self.name}'"


CLUSTER = Resource(ResourceType.CLUSTER, CLUSTER_NAME)

_IMPLY_DESCRIBE = frozenset(
    {Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DROP, Operation.ALTER, Operation.DESCRIBE}
)


def database_resource(name: str) -> Resource:
    """Return the resource that ACLs on the database `name` protect."""
    return Resource(ResourceType.DATABASE, name)


def table_resource(path: TablePath) -> Resource:
    """Return the resource that ACLs on the table `path` protect."""
    return Resource(ResourceType.TABLE, str(path))


def _operation(context: RequestContext) -> Operation:
    operation = rule_of(context.api_key).operation
    assert operation is not None, "an API key that needs no permission is not checked"
    return operation


def _refused(context: RequestContext, what: str) -> FlussError:
    return FlussError(
        f"principal {context.principal_type}:{context.principal_name} may not {_operation(context).name} on {what}; "
        "ask for an ACL that allows it",
        ErrorCode.AUTHORIZATION_EXCEPTION,
    )


class Authorizer:
    """Checks requests against the ACLs, in one server process."""

    def __init__(self, config: ServerConfig, catalog: Catalog) -> None:
        self.enabled = config.authorizer_enabled
        self._ignore_case = config.acl_ignore_case
        self._super_users = frozenset(self._normalized(kind, name) for kind, name in config.super_users)
        self._catalog = catalog
        self._indexed: tuple[Acl, ...] = ()
        self._by_resource: dict[tuple[int, str], list[Acl]] = {}

    def allows(self, context: RequestContext, operation: Operation, resource: Resource) -> bool:
        """True if the principal of a request may do `operation` on `resource`."""
        return self.is_exempt(context) or any(self._matches(acl, context, operation) for acl in self._acls_of(resource))

    def is_exempt(self, context: RequestContext) -> bool:
        """True if a request is not checked: ACLs are off, its listener is internal, or its principal a super user."""
        if not self.enabled or context.is_internal:
            return True
        return self._normalized(context.principal_type, context.principal_name) in self._super_users

    def permits(self, context: RequestContext, resource: Resource) -> bool:
        """True if the request may do on `resource` what its API key requires."""
        return self.allows(context, _operation(context), resource)

    def permits_any(self, context: RequestContext) -> bool:
        """True if the principal has the permission that the API key requires on any resource."""
        if self.is_exempt(context):
            return True
        return any(self._matches(acl, context, _operation(context)) for acl in self._catalog.acls)

    def check_any(self, context: RequestContext) -> None:
        """Raise code 48 unless the principal has the permission that the API key requires on some resource."""
        if not self.permits_any(context):
            raise _refused(context, "any resource")

    def check(self, context: RequestContext, resource: Resource) -> None:
        """Raise code 48 unless the request may use its API key on `resource`, which the request itself names."""
        if not self.permits(context, resource):
            raise _refused(context, str(resource))

    def check_unnamed(self, context: RequestContext, resource: Resource) -> None:
        """`check` a resource that the request does not name. The error names it only if the caller may see it."""
        if not self.permits(context, resource):
            seen = self.allows(context, Operation.DESCRIBE, resource)
            raise _refused(context, str(resource) if seen else f"this {resource.resource_type.name.lower()}")

    def check_table(self, context: RequestContext, path: TablePath) -> None:
        """Raise code 48 unless the request may use its API key on the table `path`."""
        if self.enabled:
            self.check(context, table_resource(path))

    def check_table_id(self, context: RequestContext, table_id: int) -> None:
        """Raise code 48 unless the request may use its API key on a table; 21 for an unknown id if ACLs are on."""
        if self.enabled and self._catalog.table_by_id(table_id) is None:
            raise FlussError(
                f"table id {table_id} does not exist; refresh the metadata",
                ErrorCode.UNKNOWN_TABLE_OR_BUCKET_EXCEPTION,
            )
        self.check_known_table_id(context, table_id)

    def check_known_table_id(self, context: RequestContext, table_id: int) -> None:
        """Raise code 48 if the table exists and the request may not use its API key on it; an unknown id passes."""
        entry = self._catalog.table_by_id(table_id) if self.enabled else None
        if entry is not None:
            self.check_unnamed(context, table_resource(entry.path))

    def _acls_of(self, resource: Resource) -> Iterable[Acl]:
        if self._indexed is not self._catalog.acls:
            self._indexed = self._catalog.acls
            self._by_resource = {}
            for acl in self._indexed:
                self._by_resource.setdefault((acl.resource_type, acl.resource_name), []).append(acl)
        for resource_type, name in _with_parents(resource):
            yield from self._by_resource.get((resource_type, name), ())
            yield from self._by_resource.get((resource_type, WILDCARD), ())

    def _matches(self, acl: Acl, context: RequestContext, operation: Operation) -> bool:
        if acl.permission != Permission.ALLOW or acl.host not in (WILDCARD, context.client_host):
            return False
        granted = acl.operation in (Operation.ALL, operation) or (
            operation == Operation.DESCRIBE and acl.operation in _IMPLY_DESCRIBE
        )
        if not granted:
            return False
        if (acl.principal_type, acl.principal_name) == (WILDCARD, WILDCARD):
            return True
        wanted = self._normalized(context.principal_type, context.principal_name)
        return self._normalized(acl.principal_type, acl.principal_name) == wanted

    def _normalized(self, principal_type: str, principal_name: str) -> tuple[str, str]:
        if self._ignore_case:
            return principal_type.lower(), principal_name.lower()
        return principal_type, principal_name


def _with_parents(resource: Resource) -> list[Resource]:
    if resource.resource_type == ResourceType.TABLE:
        return [resource, database_resource(resource.name.partition(".")[0]), CLUSTER]
    if resource.resource_type == ResourceType.DATABASE:
        return [resource, CLUSTER]
    return [resource]
