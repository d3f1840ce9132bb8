"""DECIDE_STAGED and GET_STAGED_COMMIT: the coordinator's side of staged appends.

A commit happens when DECIDE is written to the catalog (`catalog.staged_records`): before that, the staged rows can
still be discarded; from then on the tablets append them. Each decision is one transaction, so of several drivers with
the same batch id exactly one is accepted, and a late one with an old batch id never is.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from fluss.errors import ErrorCode, FlussError
from fluss.model.paths import TableBucket
from fluss.protocol import staged_api_pb2 as staged_pb
from fluss.server.apis.environment import Environment
from fluss.server.apis.staged_rules import check_identity, staged_buckets, staged_table, staged_user
from fluss.server.catalog.staged_owners import ANONYMOUS_USER
from fluss.server.catalog.staged_records import StagedFileEntry
from fluss.server.runtime.handlers import RequestContext
from fluss.server.storage.staged_files import read_header_of, staged_path

MAX_TOKEN_BYTES = 64


class StagedCommitApis:
    """Handlers for DECIDE_STAGED and GET_STAGED_COMMIT."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._records = environment.catalog.store.staged

    def decide_staged(
        self, context: RequestContext, request: staged_pb.DecideStagedRequest
    ) -> staged_pb.DecideStagedResponse:
        """Accept a batch that the caller has prepared, unless it or a later one was already decided."""
        check_identity(request.transaction, request.batch_id)
        if not 1 <= len(request.token.encode()) <= MAX_TOKEN_BYTES:
            raise FlussError(
                f"the token of a commit must have 1 to {MAX_TOKEN_BYTES} bytes, got {len(request.token.encode())}",
                ErrorCode.INVALID_PRODUCER_ID_EXCEPTION,
            )
        catalog = self._environment.catalog
        catalog.refresh()
        entry = staged_table(catalog, request.table_id)
        user = staged_user(context, self._environment.authorizer)
        self._records.owners.check(request.table_id, request.transaction, user)
        buckets = staged_buckets(catalog, entry, request.buckets)
        last = self._records.last_batch_id(request.table_id, request.transaction)
        if last is None or request.batch_id > last:
            # With logged-in users, no user may commit what another one has staged.
            self._check_files(buckets, None if user in (None, ANONYMOUS_USER) else request.transaction)
        now_ms = self._environment.clock()
        decision = self._records.decide(
            request.table_id, request.transaction, request.batch_id, request.token, buckets, now_ms, user
        )
        return staged_pb.DecideStagedResponse(accepted=decision.accepted, last_batch_id=decision.last_batch_id)

    def _check_files(
        self, buckets: Sequence[tuple[TableBucket, Sequence[StagedFileEntry]]], transaction: str | None
    ) -> None:
        """Check that every file exists and is long enough, because everything that is decided must be appended.

        With a `transaction`, which the user owns, also check that every file belongs to it.

        Callers ask the tablets with PREPARE to make the files complete and durable; this check is for callers that did
        not. All roles share the data directory, and checking a file costs microseconds.
        """
        environment = self._environment
        for bucket, files in buckets:
            directory = str(environment.config.data_dir / environment.catalog.directory(bucket))
            for file in files:
                path = staged_path(directory, file.writer_id)
                try:
                    size = os.stat(path).st_size
                except OSError:
                    size = 0
                header = None if transaction is None else read_header_of(path)
                is_other = transaction is not None and (header is None or header.transaction != transaction)
                if size <= file.size_bytes or is_other:
                    raise FlussError(
                        f"attempt {file.writer_id} has not staged {file.size_bytes} bytes in {bucket}; nothing was "
                        "committed: stage and prepare the rows first",
                        ErrorCode.UNKNOWN_WRITER_ID_EXCEPTION,
                    )

    def get_staged_commit(
        self, context: RequestContext, request: staged_pb.GetStagedCommitRequest
    ) -> staged_pb.GetStagedCommitResponse:
        """Return the last decided batch of a transaction, and how many buckets have not yet appended their rows."""
        check_identity(request.transaction)
        catalog = self._environment.catalog
        catalog.refresh()
        staged_table(catalog, request.table_id)
        user = staged_user(context, self._environment.authorizer)
        self._records.owners.check(request.table_id, request.transaction, user)
        return staged_pb.GetStagedCommitResponse(
            last_batch_id=self._records.last_batch_id(request.table_id, request.transaction),
            unapplied_buckets=self._records.unapplied_buckets(request.table_id, request.transaction),
        )
