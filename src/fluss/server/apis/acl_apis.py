"""The handlers of CREATE_ACLS, LIST_ACLS and DROP_ACLS, which change and show the permissions in the catalog."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum

from fluss.errors import ErrorCode, FlussError
from fluss.model.permissions import CLUSTER_NAME, WILDCARD, Operation, Permission, ResourceType
from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol.request_limits import MAX_REQUEST_ENTRIES
from fluss.server.apis.authorizer import CLUSTER, Resource, database_resource
from fluss.server.apis.environment import Environment
from fluss.server.catalog.records import Acl
from fluss.server.runtime.handlers import RequestContext
from fluss.server.runtime.time_slices import TimeSlices

MAX_TEXT_CHARACTERS = 1000
_MEMBERS: dict[type[IntEnum], dict[int, str]] = {
    kind: {int(member): member.name for member in kind if member != 1} for kind in (ResourceType, Operation, Permission)
}


class AclApis:
    """Handlers for the ACLs in the catalog. All three answer code 47 while the authorizer is off."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment

    async def create_acls(self, context: RequestContext, request: pb.CreateAclsRequest) -> pb.CreateAclsResponse:
        """Add all permissions, or none if one is invalid or not the caller's to grant; one result each, in order."""
        self._begin()
        response, acls, checked, time_slices = pb.CreateAclsResponse(), list[Acl](), set[Resource](), TimeSlices()
        for info in request.acl:
            acl = _checked(info)
            resource = _controlling_resource(acl)
            if resource not in checked:
                self._environment.authorizer.check(context, resource)
                checked.add(resource)
            acls.append(acl)
            response.aclRes.add(acl=info, error_code=ErrorCode.NONE)
            await time_slices.yield_if_over()
        if acls:
            self._environment.catalog.store.acls.add(acls)
        return response

    def list_acls(self, context: RequestContext, request: pb.ListAclsRequest) -> pb.ListAclsResponse:
        """Return the matching permissions on resources that the caller may see."""
        self._begin()
        matches = _matcher(request.acl_filter)
        return pb.ListAclsResponse(
            acl=[
                _message(acl)
                for acl in self._environment.catalog.acls
                if matches(acl) and self._environment.authorizer.permits(context, _resource_of(acl))
            ]
        )

    async def drop_acls(self, context: RequestContext, request: pb.DropAclsRequest) -> pb.DropAclsResponse:
        """Remove all matching permissions, or none if one is not the caller's to revoke; one result per filter.

        Every filter is compared with every permission, so the work is done in time slices.
        """
        self._begin()
        response = pb.DropAclsResponse()
        dropped: dict[Acl, None] = {}
        time_slices, matches, acls = TimeSlices(), 0, self._environment.catalog.acls
        for acl_filter in request.acl_filter:
            matching = list(filter(_matcher(acl_filter), acls))
            matches += len(matching)
            limit = len(acls) + MAX_REQUEST_ENTRIES
            if matches > limit:
                raise FlussError(
                    f"the filters match {matches} permissions, more than {limit}; split them over several requests",
                    ErrorCode.CORRUPT_MESSAGE,
                )
            # A filter may match permissions that the caller may not see: the error must not name their resources.
            for resource in dict.fromkeys(map(_controlling_resource, matching)):
                self._environment.authorizer.check_unnamed(context, resource)
            dropped.update(dict.fromkeys(matching))
            response.filter_results.add(matching_acls=[pb.PbDropAclsMatchingAcl(acl=_message(acl)) for acl in matching])
            await time_slices.yield_if_over()
        if dropped:
            self._environment.catalog.store.acls.remove(dropped)
        return response

    def _begin(self) -> None:
        if not self._environment.authorizer.enabled:
            raise FlussError(
                "this server does not check ACLs; set the option 'authorizer.enabled' to true and restart it",
                ErrorCode.SECURITY_DISABLED_EXCEPTION,
            )
        self._environment.catalog.refresh()


def _resource_of(acl: Acl) -> Resource:
    return Resource(ResourceType(acl.resource_type), acl.resource_name)


def _controlling_resource(acl: Acl) -> Resource:
    """The resource on which changing a permission requires ALL: for a table, its database."""
    if acl.resource_type == ResourceType.TABLE and acl.resource_name != WILDCARD:
        return database_resource(acl.resource_name.partition(".")[0])
    if acl.resource_type == ResourceType.TABLE or acl.resource_type == ResourceType.CLUSTER:
        return CLUSTER
    return _resource_of(acl)


def _checked(info: pb.PbAclInfo) -> Acl:
    for what, value, kind in (
        ("resource type", info.resource_type, ResourceType),
        ("operation", info.operation_type, Operation),
        ("permission", info.permission_type, Permission),
    ):
        _check_member(what, value, kind)
    for what, text in (
        ("resource name", info.resource_name),
        ("principal type", info.principal_type),
        ("principal name", info.principal_name),
        ("host", info.host),
    ):
        if len(text) > MAX_TEXT_CHARACTERS:
            raise _invalid(f"{what} of an ACL must have at most {MAX_TEXT_CHARACTERS} characters, got {len(text)}")
    if info.resource_type == ResourceType.CLUSTER and info.resource_name not in (CLUSTER_NAME, WILDCARD):
        raise _invalid(f"resource name of the cluster must be {CLUSTER_NAME!r}, got {info.resource_name!r}")
    if info.resource_type == ResourceType.TABLE and "." not in info.resource_name and info.resource_name != WILDCARD:
        raise _invalid(f"resource name of a table must be 'database.table' or '*', got {info.resource_name!r}")
    return Acl(
        info.resource_type,
        info.resource_name,
        info.principal_type,
        info.principal_name,
        info.host,
        info.operation_type,
        info.permission_type,
    )


def _check_member(what: str, value: int, kind: type[IntEnum]) -> None:
    """Refuse numbers without a meaning, and ANY (1), which is for filters only."""
    members = _MEMBERS[kind]
    if value not in members:
        listed = ", ".join(f"{number} ({name})" for number, name in members.items())
        raise _invalid(f"{what} of an ACL must be one of {listed}, got {value}")


def _invalid(message: str) -> FlussError:
    return FlussError(message, ErrorCode.UNKNOWN_SERVER_ERROR)


def _message(acl: Acl) -> pb.PbAclInfo:
    return pb.PbAclInfo(
        resource_name=acl.resource_name,
        resource_type=acl.resource_type,
        principal_name=acl.principal_name,
        principal_type=acl.principal_type,
        host=acl.host,
        operation_type=acl.operation,
        permission_type=acl.permission,
    )


def _matcher(acl_filter: pb.PbAclFilter) -> Callable[[Acl], bool]:
    """A predicate for a filter. Absent fields and ANY match everything; a principal needs both name and type."""
    wanted: list[tuple[str, object]] = []
    for field, value in (
        ("resource_type", acl_filter.resource_type),
        ("operation", acl_filter.operation_type),
        ("permission", acl_filter.permission_type),
    ):
        if value != ResourceType.ANY:
            wanted.append((field, value))
    if acl_filter.HasField("resource_name"):
        wanted.append(("resource_name", acl_filter.resource_name))
    if acl_filter.HasField("host"):
        wanted.append(("host", acl_filter.host))
    if acl_filter.HasField("principal_name") and acl_filter.HasField("principal_type"):
        wanted.append(("principal_name", acl_filter.principal_name))
        wanted.append(("principal_type", acl_filter.principal_type))
    return lambda acl: all(getattr(acl, field) == value for field, value in wanted)
