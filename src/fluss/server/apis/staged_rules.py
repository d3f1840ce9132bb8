"""Checks of requests about staged appends that coordinator and tablets share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fluss.errors import ErrorCode, FlussError
from fluss.model.paths import TableBucket
from fluss.server.apis.authorizer import Authorizer
from fluss.server.catalog import Catalog, TableEntry
from fluss.server.catalog.staged_owners import ANONYMOUS_USER
from fluss.server.catalog.staged_records import StagedFileEntry
from fluss.server.runtime.handlers import ANONYMOUS_NAME, RequestContext

# Counted in UTF-8. The name is in every staged file and in every row of `staged_work`.
MAX_TRANSACTION_NAME_BYTES = 512
# A decision names every file; a control request of 4 MiB has room for more than this.
MAX_FILES_PER_COMMIT = 100_000
MAX_ATTEMPTS_PER_COMMIT = 20_000


def check_identity(transaction: str, batch_id: int = 0) -> None:
    """Raise code 63 when a transaction name or batch id is invalid."""
    size = len(transaction.encode())
    if not 1 <= size <= MAX_TRANSACTION_NAME_BYTES:
        raise FlussError(
            f"transaction name must have 1 to {MAX_TRANSACTION_NAME_BYTES} bytes, got {size}; use the id of the query "
            "or job",
            ErrorCode.INVALID_PRODUCER_ID_EXCEPTION,
        )
    if batch_id < 0:
        raise FlussError(
            f"batch_id must not be negative, got {batch_id} for transaction {transaction!r}",
            ErrorCode.INVALID_PRODUCER_ID_EXCEPTION,
        )


def staged_user(context: RequestContext, authorizer: Authorizer) -> str | None:
    """The user whose staged appends a request may touch (`catalog.staged_owners`); None if it may touch all."""
    if authorizer.enabled and authorizer.is_exempt(context):
        return None
    if context.principal_name == ANONYMOUS_NAME:
        return ANONYMOUS_USER
    return f"{context.principal_type}:{context.principal_name}"


def staged_table(catalog: Catalog, table_id: int) -> TableEntry:
    """Return the log table of a request; code 7 if it was dropped, 15 if it is no log table.

    The caller has refreshed the catalog.
    """
    entry = catalog.table_by_id(table_id)
    if entry is None:
        raise FlussError(
            f"table id {table_id} does not exist; it was dropped, and the rows staged for it are gone",
            ErrorCode.TABLE_NOT_EXIST,
        )
    if entry.has_primary_key:
        raise FlussError(
            f"table {entry.path} has a primary key, but staged appends are for log tables; use upserts, which are "
            "idempotent",
            ErrorCode.INVALID_TABLE_EXCEPTION,
        )
    return entry


def staged_buckets(
    catalog: Catalog, entry: TableEntry, buckets: Sequence[Any]
) -> list[tuple[TableBucket, tuple[StagedFileEntry, ...]]]:
    """Return the buckets of a request with their files; an error if one does not exist, or if there are too many."""
    _check_file_count(entry, sum(len(item.files) for item in buckets))
    result: list[tuple[TableBucket, tuple[StagedFileEntry, ...]]] = []
    for item in buckets:
        bucket = TableBucket(
            entry.table_id, item.partition_id if item.HasField("partition_id") else None, item.bucket_id
        )
        if not catalog.has_bucket(bucket):
            raise _no_bucket(entry, bucket)
        if bucket.partition_id in catalog.closing_partitions:
            raise FlussError(
                f"partition id {bucket.partition_id} of table {entry.path} has expired and takes no more rows; "
                "write to a partition that is still retained",
                ErrorCode.PARTITION_NOT_EXISTS,
            )
        files = tuple(StagedFileEntry(file.writer_id, file.batch_count, file.size_bytes) for file in item.files)
        result.append((bucket, files))
    _check_counts(entry, result)
    return result


def _check_file_count(entry: TableEntry, count: int) -> None:
    if count > MAX_FILES_PER_COMMIT:
        raise _too_many(entry, f"{count} staged files", MAX_FILES_PER_COMMIT)


def _too_many(entry: TableEntry, what: str, limit: int) -> FlussError:
    return FlussError(
        f"a commit to table {entry.path} has {what}, more than the limit of {limit}; write with fewer tasks, or sort "
        "the rows by bucket",
        ErrorCode.RECORD_TOO_LARGE_EXCEPTION,
    )


def _check_counts(entry: TableEntry, buckets: Sequence[tuple[TableBucket, Sequence[StagedFileEntry]]]) -> None:
    if len({bucket for bucket, _ in buckets}) != len(buckets):
        raise _invalid(f"a commit to table {entry.path} names a bucket twice")
    attempts = {file.writer_id for _, files in buckets for file in files}
    if len(attempts) > MAX_ATTEMPTS_PER_COMMIT:
        raise _too_many(entry, f"{len(attempts)} attempts", MAX_ATTEMPTS_PER_COMMIT)
    for _, files in buckets:
        if len({file.writer_id for file in files}) != len(files):
            raise _invalid(f"a commit to table {entry.path} names an attempt twice in one bucket")
        if any(file.batch_count < 1 or file.size_bytes < 1 or file.writer_id < 0 for file in files):
            raise _invalid(f"a commit to table {entry.path} has a staged file without writer id, batches or bytes")


def _no_bucket(entry: TableEntry, bucket: TableBucket) -> FlussError:
    if bucket.partition_id is not None and entry.is_partitioned:
        return FlussError(
            f"table {entry.path} has no partition with id {bucket.partition_id}; it was dropped, and the rows staged "
            "for it are gone",
            ErrorCode.PARTITION_NOT_EXISTS,
        )
    return FlussError(
        f"table {entry.path} has no bucket {bucket.bucket_id} (partition id {bucket.partition_id}); refresh the "
        "metadata",
        ErrorCode.PARTITION_SPEC_INVALID_EXCEPTION,
    )


def _invalid(text: str) -> FlussError:
    return FlussError(f"{text}; this is a defect of the client", ErrorCode.INVALID_PRODUCER_ID_EXCEPTION)
