"""Permission checks of requests on tables, with errors that are put into the result of a bucket."""

from __future__ import annotations

from fluss.errors import ErrorCode, FlussError
from fluss.model.paths import TablePath
from fluss.model.permissions import Operation
from fluss.server.apis.authorizer import Authorizer, table_resource
from fluss.server.runtime.handlers import RequestContext


class TableAccess:
    """Checks permissions on tables with the authorizer. The handlers refresh the catalog that it reads."""

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer

    def error(self, context: RequestContext, path: TablePath) -> FlussError | None:
        """None if the principal may use the request's API on the table; otherwise the error."""
        if not self._authorizer.enabled:
            return None
        try:
            self._authorizer.check_unnamed(context, table_resource(path))
        except FlussError as error:
            return error
        return None

    def insert_error(self, context: RequestContext, path: TablePath) -> FlussError | None:
        """None if a lookup may insert missing rows; otherwise the error."""
        if self._authorizer.allows(context, Operation.WRITE, table_resource(path)):
            return None
        return FlussError(
            f"principal {context.principal_type}:{context.principal_name} has no WRITE permission on table '{path}', "
            "which a lookup that inserts missing rows requires; ask for an ACL that allows it",
            ErrorCode.AUTHORIZATION_EXCEPTION,
        )

    def check_any_write(self, context: RequestContext, paths: list[TablePath]) -> None:
        """Raise FlussError 48 unless at least one of the tables may be written."""
        if not self._authorizer.enabled:
            return
        if not any(self._authorizer.permits(context, table_resource(path)) for path in paths):
            raise FlussError(
                f"principal {context.principal_type}:{context.principal_name} has no WRITE permission on any of the "
                f"tables {', '.join(map(str, paths)) or '(none given)'}; ask for an ACL that allows it",
                ErrorCode.AUTHORIZATION_EXCEPTION,
            )
