"""`FlussTable`, and the builders that create its writers and scanners.

Builders hold no connection state. `TableScan` is immutable, so a partly configured scan can be kept and used several
times. Writers and scanners are imported when they are created: a program that only writes loads no scanner.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from fluss.client.calls.table_info import TableInfo
from fluss.client.decode.scan_plan import ScanPlan
from fluss.client.engine.engine import Engine
from fluss.client.engine.table import TableAccess
from fluss.client.net.metadata import ClientTable
from fluss.client.net.session import Session
from fluss.codec.arrow.types import to_arrow_schema
from fluss.errors import ErrorCode, FlussError
from fluss.lazy_imports import import_lock
from fluss.model import paths
from fluss.values.basic import TableBucket, TablePath, as_table_path

if TYPE_CHECKING:
    from fluss.api.cursors import Cursor
    from fluss.api.limit_scan import BatchScanner
    from fluss.api.log_scanner import LogScanner
    from fluss.api.lookup import TableLookup
    from fluss.api.table_upsert import TableUpsert
    from fluss.client.decode.bad_batches import BadBatch
    from fluss.client.fitting import ExtraDigits
    from fluss.client.write.append_writer import AppendWriter
    from fluss.values.predicates import Predicate


S = TypeVar("S", bound="BaseTableScan")


class BaseTable:
    """The common part of the blocking and the awaitable table."""

    def __init__(self, session: Session, table: ClientTable) -> None:
        self._session = session
        self._table = table

    def new_append(self) -> TableAppend:
        """A builder for writers of a log table."""
        return TableAppend(self._session, self._table)

    async def new_append_writer(self) -> AppendWriter:
        """Shorthand for `new_append().create_writer()`."""
        return self.new_append().create_writer()

    def new_upsert(self, columns: Sequence[str] | None = None) -> TableUpsert:
        """A builder for writers of a primary-key table, which is also a writer itself.

        With `columns`, shorthand for `new_upsert().partial_update_by_name(columns)`.
        """
        with import_lock:
            from fluss.api.table_upsert import new_upsert

        return new_upsert(self._session, self._table, columns)

    def new_lookup(self) -> TableLookup:
        """A builder for lookups by key, which is also a lookuper itself. Only for primary-key tables."""
        with import_lock:
            from fluss.api.lookup import TableLookup

        return TableLookup(self._session, self._table)

    async def to_arrow(
        self,
        columns: Sequence[str] | None = None,
        *,
        filter: Predicate | None = None,
        limit: int | None = None,
        union: bool | None = None,
        read_optimized: bool = False,
        lake_snapshot: int | None = None,
        as_of: int | datetime.datetime | None = None,
    ) -> pa.Table:
        """All current rows of the table, as a `pyarrow.Table`.

        A log table is read from its start to its latest offsets. Of a primary-key table, each bucket is read as of one
        moment. Rows that have expired from Fluss are read from the lake of the table.

        Args:
            columns: the columns to read, by name.
            filter: a condition such as `col("id") >= 200`.
            limit: the largest number of rows to return.
            union: True merges lake and log even if Fluss alone has all current rows of a primary-key table; False reads
                nothing from the lake.
            read_optimized: True reads only the newest snapshot of the lake.
            lake_snapshot: the id of a snapshot; only this snapshot of the lake is read.
            as_of: reads only the lake, as it was at a time: milliseconds since 1970, or an aware datetime.

        >>> await table.to_arrow(["id"], filter=col("id") >= 200)
        >>> await table.to_arrow(as_of=datetime.now(timezone.utc) - timedelta(days=1))
        """
        with import_lock:
            from fluss.api.current_rows import read_current
            from fluss.lake.reading.options import lake_options

        scan = BaseTableScan(self._session, self._table)
        if columns is not None:
            scan = scan.project_by_name(columns)
        if filter is not None:
            scan = scan.filter(filter)
        if limit is not None:
            scan = scan.limit(limit)
        lake = lake_options(union, read_optimized, lake_snapshot, as_of)
        return await read_current(self._session, self._table, scan._plan, lake)

    async def to_pandas(self, columns: Sequence[str] | None = None, **options: Any) -> Any:
        """The rows of `to_arrow` as a `pandas.DataFrame`, with the same options."""
        with import_lock:
            from fluss.api.base_scanner import pandas_of

        return pandas_of(await self.to_arrow(columns, **options))

    async def to_polars(self, columns: Sequence[str] | None = None, **options: Any) -> Any:
        """The rows of `to_arrow` as a `polars.DataFrame`, with the same options."""
        with import_lock:
            from fluss.api.base_scanner import polars_of

        return polars_of(await self.to_arrow(columns, **options))

    @property
    def arrow_schema(self) -> pa.Schema:
        """The Arrow schema of scans that read all columns."""
        return to_arrow_schema(self._table.schema)

    def get_table_info(self) -> TableInfo:
        """The description of the table at the time when it was opened."""
        return TableInfo(self._table)

    def get_table_path(self) -> TablePath:
        """The database and the name of the table."""
        return as_table_path(self._table.path)

    @property
    def table_path(self) -> TablePath:
        """Alias of `get_table_path()`."""
        return self.get_table_path()

    def has_primary_key(self) -> bool:
        """True for a primary-key table."""
        return self._table.has_primary_key

    def is_partitioned(self) -> bool:
        """True for a partitioned table."""
        return self._table.is_partitioned

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self._table.path)!r}, {TableInfo(self._table).get_schema()})"


class FlussTable(BaseTable):
    """A table of a connection; obtained with `await conn.get_table(path)`."""

    def new_scan(self) -> TableScan:
        """A builder for scanners: choose columns, filter or limit, then create the scanner."""
        return TableScan(self._session, self._table)


class TableAppend:
    """Builder for an `AppendWriter`."""

    def __init__(self, session: Session, table: ClientTable) -> None:
        if table.has_primary_key:
            raise FlussError(
                f"table {table.path} has a primary key, so rows cannot be appended; use new_upsert()",
                ErrorCode.CLIENT_ERROR,
            )
        self._session = session
        self._table = table

    def create_writer(self, *, on_extra_digits: ExtraDigits = "error") -> AppendWriter:
        """A writer that sends rows to the table.

        Digits of a second or of a decimal that a column cannot hold are refused; `on_extra_digits="truncate"` cuts them
        off, towards the past and the smaller number.

        >>> writer = table.new_append().create_writer(on_extra_digits="truncate")   # doctest: +SKIP
        """
        with import_lock:
            from fluss.client.write.append_writer import AppendWriter

        self._session.check_open()
        return AppendWriter(self._session, self._table, on_extra_digits)

    def __repr__(self) -> str:
        return f"TableAppend({str(self._table.path)!r})"


class BaseTableScan:
    """The common part of the blocking and the awaitable scan builder."""

    def __init__(self, session: Session, table: ClientTable, plan: ScanPlan | None = None) -> None:
        self._session = session
        self._table = table
        self._plan = plan or ScanPlan()

    def project(self: S, indices: Sequence[int]) -> S:
        """Read only these columns, by position, in this order."""
        return self._with(projection=self._positions(indices))

    def project_by_name(self: S, names: Sequence[str]) -> S:
        """Read only these columns, by name, in this order."""
        return self._with(projection=self._named(names))

    def filter(self: S, predicate: Predicate) -> S:
        """Read only rows that satisfy a condition, e.g. `col("id") >= 200`; the server skips batches where it can.

        After a second call, rows must satisfy both conditions.
        """
        with import_lock:
            from fluss.values.predicates import checked_predicate

        added, before = checked_predicate(predicate), self._plan.predicate
        return self._with(predicate=added if before is None else before & added)

    def limit(self: S, n: int) -> S:
        """Read at most `n` rows. Only `create_bucket_batch_scanner` supports it."""
        if isinstance(n, bool) or not isinstance(n, int) or n <= 0:
            raise FlussError(f"limit must be an int greater than 0, got {n!r}")
        return self._with(limit=n)

    def with_fixed_schema(self: S, fixed_schema: bool) -> S:
        """Set whether batches of older schemas are converted to the table's current columns, as they are by default."""
        return self._with(fixed_schema=bool(fixed_schema))

    def on_bad_batch(self: S, on_bad_batch: str, callback: Callable[[BadBatch], None] | None = None) -> S:
        """Set what happens at a batch that cannot be read, e.g. because another client wrote values out of range.

        `"error"` (the default) raises code 14 with bucket and offsets, again with every poll. `"skip"` continues after
        the batch: the thread that polls calls `callback` with a `BadBatch` for every one that was skipped; without a
        callback, each is logged as a warning (logger `fluss.client.scanner`).

        >>> skipped = []
        >>> scanner = await table.new_scan().on_bad_batch("skip", skipped.append).create_log_scanner()
        """
        with import_lock:
            from fluss.client.decode.bad_batches import checked_rule

        return self._with(on_skipped=checked_rule(on_bad_batch, callback))

    def _with(self: S, **changes: Any) -> S:
        return type(self)(self._session, self._table, replace(self._plan, **changes))

    def _positions(self, indices: Sequence[int]) -> tuple[int, ...]:
        count = len(self._table.schema.columns)
        for index in indices:
            if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index < count:
                raise FlussError(f"columns of table {self._table.path} are 0 to {count - 1}, got {index!r}")
        if not indices:
            raise FlussError(f"a projection of table {self._table.path} must have at least one column, got none")
        if len(set(indices)) != len(indices):
            raise FlussError(f"a projection must not have duplicate columns, got {list(indices)}")
        return tuple(indices)

    def _named(self, names: Sequence[str]) -> tuple[int, ...]:
        if isinstance(names, str):
            raise FlussError(f"project_by_name takes a list of names, got the string {names!r}; write [{names!r}]")
        try:
            return self._positions([self._table.schema.position(name) for name in names])
        except KeyError as error:
            raise FlussError(f"table {self._table.path}: {error.args[0]}") from None

    def _check_log_scan(self) -> None:
        self._session.check_open()
        if self._plan.limit is not None:
            limit = self._plan.limit
            raise FlussError(
                f"limit({limit}) cannot be used with a log scanner; use create_bucket_batch_scanner(bucket)"
            )

    def __repr__(self) -> str:
        columns = "all columns"
        if self._plan.projection is not None:
            names = self._table.schema.column_names
            columns = ", ".join(names[position] for position in self._plan.projection)
        condition = "" if self._plan.predicate is None else f", filter={self._plan.predicate!r}"
        limit = "" if self._plan.limit is None else f", limit={self._plan.limit}"
        return f"{type(self).__name__}({str(self._table.path)!r}, {columns}{condition}{limit})"


class TableScan(BaseTableScan):
    """Builder for scanners; each method returns a new builder."""

    async def create_log_scanner(self) -> LogScanner:
        """A scanner of records with their offsets and change types, for `poll()`."""
        return self._log_scanner(records=True)

    async def create_record_batch_log_scanner(self) -> LogScanner:
        """A scanner of Arrow batches, for `poll_arrow()`, `poll_record_batch()`, `to_arrow()` and `to_pandas()`."""
        return self._log_scanner(records=False)

    async def create_batch_scanner(self) -> LogScanner:
        """Alias of `create_record_batch_log_scanner()`."""
        return self._log_scanner(records=False)

    def create_bucket_batch_scanner(self, bucket: paths.TableBucket) -> BatchScanner:
        """A scanner of up to `limit(n)` rows of one bucket: a log's last ones, a primary-key table's first by key."""
        with import_lock:
            from fluss.api.limit_scan import BatchScanner

        return BatchScanner(self._session, self._table, self._plan, check_bucket(self._table, bucket))

    def _log_scanner(self, *, records: bool) -> LogScanner:
        with import_lock:
            from fluss.api.log_scanner import LogScanner

        self._check_log_scan()
        return LogScanner(self._session, self._table, self._plan, records=records)


def access_of(table: BaseTable) -> TableAccess:
    """The internal interface of a table that Spark and the lake use."""
    return TableAccess(Engine(table._session), table._table)


def parts_of(table: BaseTable) -> tuple[Session, ClientTable]:
    """The client session and the description of a table. Only for modules of `api`."""
    return table._session, table._table


def cursor_of(table: BaseTable, name: str) -> Cursor:
    """The cursor of a table with this name; it need not exist yet."""
    with import_lock:
        from fluss.api.cursors import Cursor

    return Cursor(table._session.cluster, table._table.table_id, name)


def batch_scanner_of(scan: TableScan) -> LogScanner:
    """Like `create_batch_scanner`, without `await`."""
    return scan._log_scanner(records=False)


def check_bucket(table: ClientTable, bucket: paths.TableBucket) -> TableBucket:
    """The bucket as a public value; raises if it cannot be a bucket of the table."""
    if not isinstance(bucket, paths.TableBucket):
        raise FlussError(f"bucket must be a TableBucket, got {bucket!r}")
    if bucket.table_id != table.table_id:
        raise FlussError(f"{bucket} has table id {bucket.table_id}, but the id of {table.path} is {table.table_id}")
    if not 0 <= bucket.bucket_id < table.bucket_count:
        raise FlussError(f"buckets of table {table.path} are 0 to {table.bucket_count - 1}, got {bucket.bucket_id}")
    if (bucket.partition_id is None) == table.is_partitioned:
        wanted = "is partitioned: its buckets must have a" if table.is_partitioned else "has no partitions: drop the"
        raise FlussError(f"table {table.path} {wanted} partition id, got {bucket}")
    return TableBucket.with_partition(*bucket)
