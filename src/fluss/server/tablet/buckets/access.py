"""May a request do with a table what it is for? The answer as an error to put into a bucket's result."""

from __future__ import annotations

from fluss.errors import ErrorCode, FlussError
from fluss.model.paths import TablePath
from fluss.model.permissions import Operation
from fluss.server.apis.authorizer import Authorizer, table_resource
from fluss.server.runtime.handlers import RequestContext


class TableAccess:
    """The authorizer, asked about tables. The catalog it reads is refreshed by the handlers."""

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer

    def error(self, context: RequestContext, path: TablePath) -> FlussError | None:
        """None when the request may do with the table what its API key is for."""
        if not self._authorizer.enabled:
            return None
        try:
            self._authorizer.check_unnamed(context, table_resource(path))
        except FlussError as error:
            return error
        return None

    def insert_error(self, context: RequestContext, path: TablePath) -> FlussError | None:
        """None when a lookup may insert what it does not find."""
        if self._authorizer.allows(context, Operation.WRITE, table_resource(path)):
            return None
        return FlussError(
            f"principal {context.principal_type}:{context.principal_name} may not WRITE on table '{path}', which a "
            "lookup that inserts does; ask for an ACL that allows it",
            ErrorCode.AUTHORIZATION_EXCEPTION,
        )

    def check_any_write(self, context: RequestContext, paths: list[TablePath]) -> None:
        """Raise 48 unless at least one of the tables may be written."""
        if not self._authorizer.enabled:
            return
        if not any(self._authorizer.permits(context, table_resource(path)) for path in paths):
            raise FlussError(
                f"principal {context.principal_type}:{context.principal_name} may not WRITE any of the tables "
                f"{', '.join(map(str, paths)) or '(none named)'}; ask for an ACL that allows it",
                ErrorCode.AUTHORIZATION_EXCEPTION,
            )
