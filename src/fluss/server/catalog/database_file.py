"""The SQLite file of the catalog: its tables, transactions and counters.

Theory. One file, `catalog.sqlite`, in WAL mode with synchronous=FULL: a commit that returned is on disk. Every
process opens its own connection (never one inherited through fork); within a process all calls come from one thread
at a time, the event-loop thread. Writers take the write lock at the start of their transaction (BEGIN IMMEDIATE), so
a transaction never fails halfway because of a lock.

Change numbers. The counter `change` grows by one with every transaction that changes what a `Catalog` shows. Rows of
databases, tables and partitions carry the change number of their last write; a drop leaves a tombstone with its
number. A reader that has seen number n reads everything above n. Tombstones are pruned to a limit; the counter
`tombstone_floor` is the highest pruned number, and a reader that is behind it reads everything again. The counter
`commits` grows with every transaction that writes anything, so that a lost one is noticed (see `mark`).

Invariants: ids handed out by counters are never reused; a schema row exists for every (table_id, 1..schema_id).
"""

from __future__ import annotations

import logging
import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from fluss.errors import ErrorCode, FlussError
from fluss.model.formats import refuse_newer

_logger = logging.getLogger(__name__)

CATALOG_FILE_NAME = "catalog.sqlite"
# The format of the whole data directory, in SQLite's `user_version`; 0 is a catalog that is still being created. It is
# raised with every change to any file that an earlier version would misread, but not for additions that earlier
# versions may ignore, such as a new table here. When it is raised, `_prepare` also upgrades older catalogs.
# 2: `bucket.offsets` and batches without rows, which version 1 counts as rows; it would also reassign offsets that they
# reserve. `drops` and `staged_owners`, which version 1 would not maintain. Everything else is as in version 1.
FORMAT_VERSION = 2
# How long a writer waits for another process's transaction, which takes milliseconds.
LOCK_WAIT_SECONDS = 10.0
LOCK_RETRY_SECONDS = 0.005
TOMBSTONE_LIMIT_ROWS = 10_000
COMMITS_COUNTER = "commits"
STATEMENT_CACHE_LIMIT = 128

_TABLES = """
CREATE TABLE IF NOT EXISTS counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS databases (
    name TEXT PRIMARY KEY, descriptor TEXT NOT NULL, created_time INTEGER NOT NULL, modified_time INTEGER NOT NULL,
    change INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS databases_by_change ON databases (change);
CREATE TABLE IF NOT EXISTS tables (
    table_id INTEGER PRIMARY KEY, database_name TEXT NOT NULL REFERENCES databases (name), table_name TEXT NOT NULL,
    descriptor TEXT NOT NULL, schema_id INTEGER NOT NULL, created_time INTEGER NOT NULL,
    modified_time INTEGER NOT NULL, change INTEGER NOT NULL, UNIQUE (database_name, table_name));
CREATE INDEX IF NOT EXISTS tables_by_change ON tables (change);
CREATE TABLE IF NOT EXISTS schemas (
    table_id INTEGER NOT NULL REFERENCES tables (table_id) ON DELETE CASCADE, schema_id INTEGER NOT NULL,
    schema TEXT NOT NULL, PRIMARY KEY (table_id, schema_id)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS partitions (
    partition_id INTEGER PRIMARY KEY, table_id INTEGER NOT NULL REFERENCES tables (table_id) ON DELETE CASCADE,
    name TEXT NOT NULL, change INTEGER NOT NULL, UNIQUE (table_id, name));
CREATE INDEX IF NOT EXISTS partitions_by_change ON partitions (change);
CREATE TABLE IF NOT EXISTS tombstones (change INTEGER NOT NULL, kind TEXT NOT NULL, id TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS tombstones_by_change ON tombstones (change);
CREATE TABLE IF NOT EXISTS acls (
    resource_type INTEGER NOT NULL, resource_name TEXT NOT NULL, principal_type TEXT NOT NULL,
    principal_name TEXT NOT NULL, host TEXT NOT NULL, operation INTEGER NOT NULL, permission INTEGER NOT NULL,
    PRIMARY KEY (resource_type, resource_name, principal_type, principal_name, host, operation, permission)
    ) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS cluster_config (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS server_tags (server_id INTEGER PRIMARY KEY, tag INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS producer_offsets (
    producer_id TEXT PRIMARY KEY, offsets TEXT NOT NULL, expiration_time INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS kv_snapshot_leases (
    lease_id TEXT PRIMARY KEY, snapshots TEXT NOT NULL, expiration_time INTEGER NOT NULL) WITHOUT ROWID;
"""

# Tables that were added later; an older catalog of the same format gets them when it is opened.
_LATER_TABLES = {
    "kv_snapshots": """
CREATE TABLE IF NOT EXISTS kv_snapshots (
    table_id INTEGER NOT NULL REFERENCES tables (table_id) ON DELETE CASCADE,
    partition_id INTEGER REFERENCES partitions (partition_id) ON DELETE CASCADE, bucket_id INTEGER NOT NULL,
    snapshot_id INTEGER NOT NULL, log_offset INTEGER NOT NULL, document TEXT NOT NULL);
CREATE UNIQUE INDEX IF NOT EXISTS kv_snapshots_by_bucket
    ON kv_snapshots (table_id, ifnull(partition_id, -1), bucket_id, snapshot_id);
CREATE INDEX IF NOT EXISTS kv_snapshots_by_partition ON kv_snapshots (partition_id);
""",
    "staged_transactions": """
CREATE TABLE IF NOT EXISTS staged_transactions (
    table_id INTEGER NOT NULL REFERENCES tables (table_id) ON DELETE CASCADE, name TEXT NOT NULL,
    last_batch_id INTEGER NOT NULL, token TEXT NOT NULL, updated_time INTEGER NOT NULL,
    PRIMARY KEY (table_id, name)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS staged_work (
    work_id INTEGER PRIMARY KEY, table_id INTEGER NOT NULL REFERENCES tables (table_id) ON DELETE CASCADE,
    partition_id INTEGER REFERENCES partitions (partition_id) ON DELETE CASCADE, bucket_id INTEGER NOT NULL,
    name TEXT NOT NULL, batch_id INTEGER NOT NULL, files TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS staged_revoked (writer_id INTEGER PRIMARY KEY);
""",
    "staged_owners": """
CREATE TABLE IF NOT EXISTS staged_owners (
    table_id INTEGER NOT NULL REFERENCES tables (table_id) ON DELETE CASCADE, name TEXT NOT NULL, owner TEXT NOT NULL,
    claimed_time INTEGER NOT NULL, PRIMARY KEY (table_id, name)) WITHOUT ROWID;
""",
    "lake_snapshots": """
CREATE TABLE IF NOT EXISTS lake_snapshots (
    entry_id INTEGER PRIMARY KEY, table_id INTEGER NOT NULL REFERENCES tables (table_id) ON DELETE CASCADE,
    snapshot_id INTEGER NOT NULL, tiered_path TEXT NOT NULL, readable_path TEXT, tiered_offsets TEXT NOT NULL,
    readable_offsets TEXT, registered_time INTEGER NOT NULL, UNIQUE (table_id, snapshot_id));
CREATE TABLE IF NOT EXISTS lake_offsets (
    table_id INTEGER NOT NULL REFERENCES tables (table_id) ON DELETE CASCADE, partition_id INTEGER,
    bucket_id INTEGER NOT NULL, end_offset INTEGER NOT NULL, max_timestamp INTEGER);
CREATE UNIQUE INDEX IF NOT EXISTS lake_offsets_by_bucket
    ON lake_offsets (table_id, ifnull(partition_id, -1), bucket_id);
CREATE TABLE IF NOT EXISTS lake_tiering (
    table_id INTEGER PRIMARY KEY REFERENCES tables (table_id) ON DELETE CASCADE, tiering_epoch INTEGER NOT NULL,
    last_tiered_time INTEGER, file_size INTEGER, record_count INTEGER);
""",
    "closing_partitions": """
CREATE TABLE IF NOT EXISTS closing_partitions (
    partition_id INTEGER PRIMARY KEY REFERENCES partitions (partition_id) ON DELETE CASCADE,
    table_id INTEGER NOT NULL, since_time INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS closing_ends (
    partition_id INTEGER NOT NULL REFERENCES partitions (partition_id) ON DELETE CASCADE, bucket_id INTEGER NOT NULL,
    end_offset INTEGER NOT NULL, PRIMARY KEY (partition_id, bucket_id)) WITHOUT ROWID;
""",
    "row_numbers": """
CREATE TABLE IF NOT EXISTS row_numbers (
    table_id INTEGER NOT NULL REFERENCES tables (table_id) ON DELETE CASCADE,
    partition_id INTEGER REFERENCES partitions (partition_id) ON DELETE CASCADE, bucket_id INTEGER NOT NULL,
    next INTEGER NOT NULL, block_end INTEGER NOT NULL);
CREATE UNIQUE INDEX IF NOT EXISTS row_numbers_by_bucket
    ON row_numbers (table_id, ifnull(partition_id, -1), bucket_id);
CREATE INDEX IF NOT EXISTS row_numbers_by_partition ON row_numbers (partition_id);
""",
    "lake_prepared": """
CREATE TABLE IF NOT EXISTS lake_prepared (
    path TEXT PRIMARY KEY, table_id INTEGER NOT NULL REFERENCES tables (table_id) ON DELETE CASCADE,
    prepared_time INTEGER NOT NULL) WITHOUT ROWID;
""",
    "drops": """
CREATE TABLE IF NOT EXISTS drops (
    kind TEXT NOT NULL, id INTEGER NOT NULL, change INTEGER NOT NULL, PRIMARY KEY (kind, id)) WITHOUT ROWID;
""",
}
LATER_TABLE_NAMES = frozenset(_LATER_TABLES)


class DatabaseFile:
    """One process's connection to the catalog file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        # Own commits do not change PRAGMA data_version, so readers in this process compare this number too.
        self.own_commits = 0
        is_new = not path.exists()
        self.connection = self._connect()
        try:
            self._prepare()
        except FlussError:
            self.connection.close()
            raise
        except sqlite3.Error as error:
            self.connection.close()
            raise self._unusable(error) from None
        if is_new:
            _sync_directory(path.parent)

    def _connect(self) -> sqlite3.Connection:
        try:
            if not self.path.exists():  # SQLite gives its other files the mode of this file.
                os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            # The embedded server opens the catalog in the caller's thread and then uses it in its own thread.
            return sqlite3.connect(
                self.path,
                timeout=LOCK_WAIT_SECONDS,
                isolation_level=None,
                check_same_thread=False,
                cached_statements=STATEMENT_CACHE_LIMIT,
            )
        except (sqlite3.Error, OSError) as error:
            raise self._unusable(error) from None

    def _prepare(self) -> None:
        self._switch_to_wal()
        self.connection.execute("PRAGMA synchronous = FULL")
        self.connection.execute("PRAGMA foreign_keys = ON")
        (version,) = self.connection.execute("PRAGMA user_version").fetchone()
        refuse_newer(f"catalog {self.path}", version, FORMAT_VERSION)
        known = {name for (name,) in self.connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        scripts = [script for name, script in _LATER_TABLES.items() if name not in known]
        if version != FORMAT_VERSION:
            scripts.insert(0, _TABLES)
        if not scripts:
            return
        # One transaction, so that a crash during the first start leaves either no tables or all of them.
        with self.transaction():
            for statement in "".join(scripts).split(";"):
                if statement.strip():
                    self.connection.execute(statement)
            self.connection.execute(f"PRAGMA user_version = {FORMAT_VERSION}")

    def _switch_to_wal(self) -> None:
        """Set WAL mode, a property of the file. SQLite's own lock wait does not cover this, so retry here."""
        deadline = time.monotonic() + LOCK_WAIT_SECONDS
        while True:
            try:
                self.connection.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() > deadline:
                    raise
                time.sleep(LOCK_RETRY_SECONDS)

    def _unusable(self, error: sqlite3.Error | OSError) -> FlussError:
        return FlussError(
            f"cannot open the catalog {self.path}: {error}; check that the directory is writable and the file intact",
            ErrorCode.STORAGE_EXCEPTION,
        )

    def close(self) -> None:
        """Close the connection; the object must not be used afterwards."""
        self.connection.close()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Run the block as one write transaction: on disk when it ends, rolled back when it raises."""
        try:
            self.connection.execute("BEGIN IMMEDIATE")
            written_before = self.connection.total_changes
            try:
                yield self.connection
                if self.connection.total_changes != written_before:
                    self.add_to_counter(COMMITS_COUNTER, 1)
                self.connection.execute("COMMIT")
            except BaseException:
                if self.connection.in_transaction:
                    self.connection.execute("ROLLBACK")
                raise
        except sqlite3.Error as error:
            failure = self._write_failure(error)
            _logger.warning("%s", failure.message)
            raise failure from None
        self.own_commits += 1

    @contextmanager
    def snapshot(self) -> Iterator[sqlite3.Connection]:
        """Let all reads of the block see the same state of the catalog, whatever other processes commit meanwhile."""
        try:
            self.connection.execute("BEGIN")
            try:
                yield self.connection
            finally:
                self.connection.execute("COMMIT")
        except sqlite3.Error as error:
            failure = self._read_failure(error)
            _logger.warning("%s", failure.message)
            raise failure from None

    def rows(self, statement: str, values: Sequence[object] = ()) -> list[Any]:
        """Return all rows of a query. Every error names the catalog file, even one about a damaged value in it."""
        try:
            return self.connection.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            failure = self._read_failure(error)
            _logger.warning("%s", failure.message)
            raise failure from None

    def row(self, statement: str, values: Sequence[object] = ()) -> Any:
        """Return the first row of a query, or None."""
        return next(iter(self.rows(statement, values)), None)

    def _write_failure(self, error: sqlite3.Error) -> FlussError:
        text = str(error)
        if "full" in text:
            return FlussError(
                f"no space left on the disk of the catalog {self.path}, so nothing was changed; free some space and "
                "repeat the call",
                ErrorCode.DISK_WRITE_LOCKED,
            )
        if "locked" in text or "busy" in text:
            return FlussError(
                f"the catalog {self.path} was locked for {LOCK_WAIT_SECONDS:g} s, so nothing was changed; repeat the "
                "call",
                ErrorCode.STORAGE_EXCEPTION,
            )
        return FlussError(f"cannot write the catalog {self.path}: {text}; check the disk", ErrorCode.STORAGE_EXCEPTION)

    def data_version(self) -> tuple[int, int]:
        """Return a value that changes with every commit of this or another process; costs microseconds."""
        (version,) = self.row("PRAGMA data_version")
        return version, self.own_commits

    def _read_failure(self, error: sqlite3.Error) -> FlussError:
        return FlussError(f"cannot read the catalog {self.path}: {error}; check the disk", ErrorCode.STORAGE_EXCEPTION)

    def counter(self, name: str) -> int:
        """Return the value of a counter, 0 if it was never used."""
        row = self.row("SELECT value FROM counters WHERE name = ?", (name,))
        return int(row[0]) if row else 0

    def add_to_counter(self, name: str, amount: int) -> int:
        """Reserve `amount` numbers and return the first. Call within a transaction."""
        assert self.connection.in_transaction
        first = self.counter(name)
        self.set_counter(name, first + amount)
        return first

    def set_counter(self, name: str, value: int) -> None:
        """Set a counter. Call within a transaction."""
        assert self.connection.in_transaction
        self.connection.execute("INSERT OR REPLACE INTO counters VALUES (?, ?)", (name, value))

    def next_change(self) -> int:
        """Return the change number of the current transaction."""
        return self.add_to_counter("change", 1) + 1

    def add_tombstone(self, change: int, kind: str, identifier: str) -> None:
        """Record for readers that an entry is removed. Call within the transaction that removes it."""
        connection = self.connection
        connection.execute("INSERT INTO tombstones VALUES (?, ?, ?)", (change, kind, identifier))
        (newest,) = connection.execute("SELECT max(rowid) FROM tombstones").fetchone()
        (pruned,) = connection.execute(
            "SELECT max(change) FROM tombstones WHERE rowid <= ?", (newest - TOMBSTONE_LIMIT_ROWS,)
        ).fetchone()
        if pruned is not None:
            connection.execute("DELETE FROM tombstones WHERE change <= ?", (pruned,))
            self.set_counter("tombstone_floor", pruned)


def stored_format_version(path: Path) -> int | None:
    """Return the format version of a catalog that no process has open, None if there is none. Changes nothing."""
    if is_missing_or_empty(path):
        return None
    try:
        with reading(path) as connection:
            (version,) = connection.execute("PRAGMA user_version").fetchone()
    except sqlite3.Error:
        return None
    return int(version)


def is_missing_or_empty(path: Path) -> bool:
    """True for a file that must not be opened even for reading: SQLite would delete its write-ahead log."""
    return not path.exists() or path.stat().st_size == 0


@contextmanager
def reading(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a catalog that no process has open, without changing it.

    A killed server may have left changes in the write-ahead log. If there is no log, the file is opened as immutable,
    because SQLite would create an empty log otherwise.
    """
    mode = "mode=ro" if path.with_name(f"{path.name}-wal").exists() else "immutable=1"
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?{mode}", uri=True)) as connection:
        yield connection


def _sync_directory(directory: Path) -> None:
    """Make the new file's name durable; without this a power loss could remove the whole catalog."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
