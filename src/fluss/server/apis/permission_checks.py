"""Wraps handlers so that the permission for their API key is checked before they run.

So a caller without permission does not learn whether a table exists. Only rules with `Refusal.ERROR` can be checked
outside the handler; see `security.permissions`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from fluss.protocol.api_keys import ApiKey
from fluss.server.apis.authorizer import CLUSTER, Authorizer, database_resource
from fluss.server.apis.environment import Environment, table_path
from fluss.server.runtime.handlers import Handler, Reply, RequestContext
from fluss.server.security.permissions import On, Refusal, rule_of

_Check = Callable[[Authorizer, RequestContext, object], None]


def with_permission_checks(environment: Environment, handlers: Mapping[int, Handler]) -> Mapping[int, Handler]:
    """Return the handlers with their checks, or unchanged while ACLs are off; ValueError for a key without a rule."""
    return {key: _with_check(environment, ApiKey(key), handler) for key, handler in handlers.items()}


def _with_check(environment: Environment, api_key: ApiKey, handler: Handler) -> Handler:
    rule = rule_of(api_key)
    if not environment.authorizer.enabled or rule.refusal is not Refusal.ERROR:
        return handler
    check = _CHECKS[rule.on]

    def checked(context: RequestContext, request: object) -> Reply | Awaitable[Reply]:
        environment.catalog.refresh()
        check(environment.authorizer, context, request)
        return handler(context, request)

    return checked


def _check_cluster(authorizer: Authorizer, context: RequestContext, request: object) -> None:
    authorizer.check(context, CLUSTER)


def _check_database(authorizer: Authorizer, context: RequestContext, request: Any) -> None:
    authorizer.check(context, database_resource(request.database_name))


def _check_database_of_table(authorizer: Authorizer, context: RequestContext, request: Any) -> None:
    authorizer.check(context, database_resource(request.table_path.database_name))


def _check_table(authorizer: Authorizer, context: RequestContext, request: Any) -> None:
    """Check a table given by path or id. An unknown id is left to the handler, whose error makes clients refresh it."""
    if "table_path" in request.DESCRIPTOR.fields_by_name:
        authorizer.check_table(context, table_path(request.table_path))
    else:
        authorizer.check_known_table_id(context, request.table_id)


_CHECKS: dict[On, _Check] = {
    On.CLUSTER: _check_cluster,
    On.DATABASE: _check_database,
    On.DATABASE_OF_TABLE: _check_database_of_table,
    On.TABLE: _check_table,
}
