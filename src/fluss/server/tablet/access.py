"""May the sender of a request read or write a table? The answer as an error to put into a bucket's result."""

from __future__ import annotations

from fluss.errors import ErrorCode, FlussError
from fluss.model.paths import TablePath
from fluss.model.permissions import Operation
from fluss.server.network.service import RequestContext
from fluss.server.security.authorizer import Authorizer, table_resource


class TableAccess:
    """The authorizer, asked about tables. The catalog it reads is refreshed by the handlers."""

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer

    def read_error(self, context: RequestContext, path: TablePath) -> FlussError | None:
        """None when the table may be read."""
        return self._error(context, Operation.READ, path)

    def write_error(self, context: RequestContext, path: TablePath) -> FlussError | None:
        """None when the table may be written."""
        return self._error(context, Operation.WRITE, path)

    def check_describe(self, context: RequestContext, path: TablePath) -> None:
        """Raise 48 unless the table may be described."""
        self._authorizer.check_table(context, Operation.DESCRIBE, path)

    def check_any_write(self, context: RequestContext, paths: list[TablePath]) -> None:
        """Raise 48 unless at least one of the tables may be written."""
        if not self._authorizer.enabled:
            return
        if not any(self._authorizer.allows(context, Operation.WRITE, table_resource(path)) for path in paths):
            raise FlussError(
                f"principal {context.principal_type}:{context.principal_name} may not WRITE any of the tables "
                f"{', '.join(map(str, paths)) or '(none named)'}; ask for an ACL that allows it",
                ErrorCode.AUTHORIZATION_EXCEPTION,
            )

    def _error(self, context: RequestContext, operation: Operation, path: TablePath) -> FlussError | None:
        if not self._authorizer.enabled:
            return None
        try:
            self._authorizer.check_table(context, operation, path)
        except FlussError as error:
            return error
        return None
