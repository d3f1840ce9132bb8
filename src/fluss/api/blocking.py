"""`fluss.connect`: tables for scripts and notebooks, without event loops.

    with fluss.connect("127.0.0.1:9123") as db:
        db.append("events", [{"id": 1, "name": "Alice"}])
        print(db.scan("events").to_pandas())
        db.upsert("users", {"id": 1, "name": "Alice"})
        print(db.lookup("users", 1))

Every call blocks until it is done, also in a notebook, whose own event loop continues afterwards. A `Database` uses the
same session as the rest of the client, keeps writers and lookupers per table, and may be used by several threads.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from fluss.api.blocking_parts import APPEND, DELETE, UPSERT, Kept, PartitionWatch, Verb, check_deletes
from fluss.api.connection import FlussConnection, close_blocking, open_table, session_of
from fluss.api.table import FlussTable, batch_scanner_of
from fluss.client.calls.admin import REMOVE_VALUE as _REMOVE
from fluss.client.calls.admin import SET_VALUE as _SET
from fluss.client.calls.admin import AdminCalls, NewColumns, config_changes, new_columns
from fluss.client.calls.table_info import TableInfo
from fluss.config import Config
from fluss.errors import FlussError
from fluss.lazy_imports import import_lock
from fluss.model import paths
from fluss.values.basic import EARLIEST_OFFSET, PartitionInfo, TableBucket, TablePath, as_table_path
from fluss.values.descriptors import TableDescriptor
from fluss.values.schema import Schema

if TYPE_CHECKING:
    from fluss.client.fitting import ExtraDigits
    from fluss.client.scan.records import RecordBatch
    from fluss.values.predicates import Predicate

DEFAULT_DATABASE = "fluss"
FOLLOW_POLL_MS = 500  # how long `follow` waits for rows before it checks for an interrupt

Table = paths.TablePath | str
Rows = Any


def connect(
    bootstrap_servers: str | Config | None = None,
    *,
    database: str = DEFAULT_DATABASE,
    username: str | None = None,
    password: str | None = None,
    **options: object,
) -> Database:
    """Connect to a cluster: `fluss.connect("host:9123", writer_acks="1")`. Options are the properties of `Config`."""
    if isinstance(bootstrap_servers, Config):
        config = bootstrap_servers.copy()
    else:
        config = Config({} if bootstrap_servers is None else {"bootstrap.servers": bootstrap_servers})
    if username is not None or password is not None:
        options = {
            "security_protocol": "sasl",
            "security_sasl_username": username,
            "security_sasl_password": password,
            **options,
        }
    for name, value in Config(options).explicit().items():
        setattr(config, name, value)
    return Database(FlussConnection.open(config), database)


class Database:
    """The tables of one database, by name; `"other.table"` or a `TablePath` names a table of another database."""

    def __init__(self, connection: FlussConnection, database: str = DEFAULT_DATABASE) -> None:
        self._connection = connection
        self._session = session_of(connection)
        self._calls = AdminCalls(self._session.cluster)
        self._database = database
        self._kept = Kept()

    @property
    def connection(self) -> FlussConnection:
        """The underlying `FlussConnection`, for calls that this class does not offer."""
        return self._connection

    # ---- databases and tables: list and describe ----

    def databases(self) -> list[str]:
        """Names of all databases."""
        return self._session.run(self._calls.list_databases())

    def tables(self, database: str | None = None) -> list[str]:
        """Names of the tables of this or another database."""
        return self._session.run(self._calls.list_tables(database or self._database))

    def info(self, table: Table) -> TableInfo:
        """Describe a table."""
        return self._session.run(self._calls.get_table_info(self._path(table)))

    def partitions(self, table: Table) -> list[PartitionInfo]:
        """The partitions of a table."""
        return self._session.run(self._calls.list_partition_infos(self._path(table), None))

    # ---- databases and tables: create, alter, drop ----

    def create_database(self, name: str, *, ignore_if_exists: bool = True) -> None:
        """Create a database; by default, one that exists already is not an error."""
        self._session.run(self._calls.create_database(name, None, ignore_if_exists))

    def create_table(
        self,
        table: Table,
        schema: Schema | pa.Schema | TableDescriptor,
        *,
        ignore_if_exists: bool = False,
        primary_keys: Sequence[str] | None = None,
        **options: Any,
    ) -> None:
        """Create a table from a schema. Options are those of `TableDescriptor`, e.g. `bucket_count=4`."""
        if isinstance(schema, pa.Schema):
            schema = Schema(schema, primary_keys)
        elif primary_keys:
            raise FlussError(f"primary_keys {primary_keys!r} require a pyarrow schema; a fluss.Schema has its own keys")
        descriptor = schema if isinstance(schema, TableDescriptor) else TableDescriptor(schema, **options)
        self._session.run(self._calls.create_table(self._path(table), descriptor, ignore_if_exists))

    def alter_table(
        self,
        table: Table,
        *,
        add_columns: NewColumns | None = None,
        set_properties: Mapping[str, str] | None = None,
        remove_properties: Iterable[str] | None = None,
    ) -> None:
        """Add columns at the end, or change properties, as `FlussAdmin.alter_table` does."""
        changes = config_changes(_SET, set_properties) + config_changes(_REMOVE, remove_properties)
        call = self._calls.alter_table(self._path(table), changes, new_columns(add_columns), False)
        self._session.run(call)
        self._forget(table)

    def drop_table(self, table: Table, *, ignore_if_not_exists: bool = False) -> None:
        """Drop a table and its data."""
        self._forget(table)
        self._session.run(self._calls.drop_table(self._path(table), ignore_if_not_exists))

    def create_partition(
        self, table: Table, partition_spec: Mapping[str, str], *, ignore_if_exists: bool = False
    ) -> None:
        """Create a partition, e.g. `{"region": "US"}`."""
        self._session.run(self._calls.create_partition(self._path(table), partition_spec, ignore_if_exists))

    # ---- rows ----

    def append(self, table: Table, rows: Rows, *, on_extra_digits: ExtraDigits = "error") -> None:
        """Append rows and wait until they are durable.

        `rows` is a dict for one row, an iterable of rows (dicts, or lists or tuples in column order), a pyarrow Table,
        RecordBatch or RecordBatchReader, or a pandas or polars DataFrame. A value that its column cannot hold is
        refused. Then no row of a table or DataFrame is written; of an iterable or reader, the rows before the refused
        one are written, and the error names it. `on_extra_digits="truncate"` cuts off digits that a column cannot hold.

        >>> db.append("events", [{"id": 1, "name": "Alice"}, (2, "Bob")])
        """
        self._write(APPEND, table, rows, None, on_extra_digits)

    def upsert(
        self, table: Table, rows: Rows, columns: Sequence[str] | None = None, *, on_extra_digits: ExtraDigits = "error"
    ) -> None:
        """Insert rows into a primary-key table, or replace rows with the same key, and wait until they are durable.

        `rows` and `on_extra_digits` are as in `append`. `columns`, the key among them: write these, keep the others.

        >>> db.upsert("users", {"id": 1, "name": "Alice", "age": 30})
        >>> db.upsert("users", [(1, 31), (2, 20)], columns=["id", "age"])
        """
        self._write(UPSERT, table, rows, columns, on_extra_digits)

    def delete(self, table: Table, keys: Rows) -> None:
        """Delete rows of a primary-key table and wait until that is durable; `keys` has any form that `append` takes.

        Rows of a table with an auto-increment column cannot be deleted: no server supports it.

        >>> db.delete("users", [(2,), {"id": 3}])
        """
        self._write(DELETE, table, keys)

    def lookup(self, table: Table, key: Any, *, by: Sequence[str] | None = None) -> Any:
        """The row of a primary-key table with this key, as a dict, or None if there is no such row.

        `key` is a dict, a list or tuple in the order of the primary key, or the value itself for a key of one column.
        With `by`, the first columns of the key (see `TableLookup.lookup_by`), the result is the list of matching rows.

        >>> db.lookup("users", 1)
        {'id': 1, 'name': 'Alice', 'age': 31}
        >>> db.lookup("readings", "d7", by=["device"])
        [{'device': 'd7', 'at': 1, 'value': 20.5}, {'device': 'd7', 'at': 2, 'value': 20.7}]
        """

        def new_lookuper(opened: FlussTable) -> Any:
            lookup = opened.new_lookup()
            return lookup.create_lookuper() if by is None else lookup.lookup_by(by).create_lookuper()

        with self._keeping(table):
            return self._session.run(self._keep(table, "lookup", by, new_lookuper).lookup(key))

    def lookup_many(self, table: Table, keys: Any) -> Any:
        """The rows of many keys, in their order: a pyarrow Table for Arrow keys, else a list of dicts and Nones.

        >>> db.lookup_many("users", [1, 2])
        [{'id': 1, 'name': 'Alice', 'age': 31}, None]
        """
        with self._keeping(table):
            lookuper = self._keep(table, "lookup", None, lambda opened: opened.new_lookup().create_lookuper())
            return self._session.run(lookuper.lookup_many(keys))

    def to_arrow(
        self,
        table: Table,
        columns: Sequence[str] | None = None,
        *,
        where: Predicate | None = None,
        limit: int | None = None,
        **lake: Any,
    ) -> pa.Table:
        """All current rows of a table; for a log table these are all rows that were appended so far.

        `union`, `read_optimized`, `lake_snapshot` and `as_of` control the use of the table's lake; see
        `FlussTable.to_arrow`.

        >>> db.to_arrow("users", ["id", "age"], where=fluss.col("age") >= 18).to_pandas()
        >>> db.to_arrow("orders", read_optimized=True)
        """
        return self._session.run(self._open(table).to_arrow(columns, filter=where, limit=limit, **lake))

    def scan(
        self,
        table: Table,
        columns: Sequence[str] | None = None,
        *,
        where: Predicate | None = None,
        start_offset: int = EARLIEST_OFFSET,
        since: Any = None,
        on_bad_batch: str = "error",
    ) -> pa.Table:
        """All rows of a log table up to now, as a pyarrow Table.

        `where` is a condition such as `col("id") >= 200`, `since` the time to start from (milliseconds since 1970, or
        an aware datetime). With `on_bad_batch="skip"`, batches that cannot be read are skipped with a warning.

        >>> db.scan("events", on_bad_batch="skip").to_pandas()
        """
        with self._scanner(table, columns, where, start_offset, since, on_bad_batch) as scanner:
            return scanner.to_arrow()  # type: ignore[no-any-return]

    def head(self, table: Table, limit: int = 10, columns: Sequence[str] | None = None) -> pa.Table:
        """A sample of a table: up to `limit` rows of its first bucket that has any, of a log table the newest ones."""
        opened = self._open(table)
        scan = opened.new_scan().limit(limit)
        if columns is not None:
            scan = scan.project_by_name(columns)
        result: pa.Table | None = None
        for bucket in self._buckets(opened):
            result = scan.create_bucket_batch_scanner(bucket).to_arrow()
            if result.num_rows:
                break
        if result is None:  # no partition, so no bucket
            found = opened.arrow_schema.empty_table()
            return found if columns is None else found.select(columns)
        return result

    def follow(
        self,
        table: Table,
        columns: Sequence[str] | None = None,
        *,
        where: Predicate | None = None,
        start_offset: int = EARLIEST_OFFSET,
        since: Any = None,
        on_bad_batch: str = "error",
    ) -> Iterator[RecordBatch]:
        """Batches of a log table as they arrive, without end; stop iterating to stop reading.

        Partitions that are created during the read are found within a few seconds and read from their start.
        """
        with import_lock:
            from fluss.api.base_scanner import core_of

        with self._scanner(table, columns, where, start_offset, since, on_bad_batch) as scanner:
            watch = PartitionWatch(core_of(scanner))
            while True:
                yield from scanner.poll_record_batch(FOLLOW_POLL_MS)
                watch.look()

    # ---- life ----

    def close(self) -> None:
        """Send all appended rows, then close the connection."""
        close_blocking(self._connection)

    def __enter__(self) -> Database:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Literal[False]:
        self.close()
        return False

    def __repr__(self) -> str:
        state = ", closed" if self._connection.is_closed else ""
        return f"Database({self._session.config.bootstrap_servers!r}, {self._database!r}{state})"

    # ---- inside ----

    def _path(self, table: Table) -> TablePath:
        if isinstance(table, str) and "." not in table:
            return TablePath(self._database, table)
        return as_table_path(table)

    def _open(self, table: Table) -> FlussTable:
        return open_table(self._connection, self._path(table))

    def _write(
        self,
        verb: Verb,
        table: Table,
        rows: Rows,
        columns: Sequence[str] | None = None,
        digits: ExtraDigits = "error",
    ) -> None:
        kind = verb.name + ("" if digits == "error" else f" {digits}")

        def make(opened: FlussTable) -> object:
            if verb is APPEND:
                return opened.new_append().create_writer(on_extra_digits=digits)
            if verb is DELETE:
                check_deletes(opened.get_table_info())
            with import_lock:
                from fluss.api.table_upsert import lenient_writer

            return lenient_writer(opened.new_upsert(columns=columns), digits)

        def new_writer(reopen: bool) -> object:
            if reopen:
                self._forget(table)
            return self._keep(table, kind, columns, make)

        with self._keeping(table):
            verb.write(rows, columns, new_writer)

    def _keep(self, table: Table, kind: str, columns: Sequence[str] | None, make: Callable[[FlussTable], Any]) -> Any:
        """The cached writer or lookuper of a table, or a new one."""
        path = self._path(table)
        return self._kept.get(path, kind, columns, lambda: make(self._open(path)))

    @contextlib.contextmanager
    def _keeping(self, table: Table) -> Iterator[None]:
        """After an error in the block, drop the writers and lookupers of the table: it may have been recreated."""
        try:
            yield
        except FlussError:
            self._forget(table)
            raise

    def _forget(self, table: Table) -> None:
        self._kept.forget(self._path(table))

    def _scanner(
        self,
        table: Table,
        columns: Sequence[str] | None,
        where: Predicate | None,
        start_offset: int,
        since: Any,
        on_bad_batch: str,
    ) -> Any:
        scan = self._open(table).new_scan().on_bad_batch(on_bad_batch)
        if columns is not None:
            scan = scan.project_by_name(columns)
        if where is not None:
            scan = scan.filter(where)
        scanner = batch_scanner_of(scan)
        if since is not None:
            scanner.from_timestamp(since)
        else:
            scanner.subscribe_all(start_offset)
        return scanner

    def _buckets(self, table: FlussTable) -> Iterator[TableBucket]:
        info = table.get_table_info()
        partition_ids: list[int | None] = [None]
        if info.is_partitioned():
            partition_ids = [partition.partition_id for partition in self.partitions(info.table_path)]
        for partition_id in partition_ids:
            for bucket_id in range(info.num_buckets):
                yield TableBucket.with_partition(info.table_id, partition_id, bucket_id)
