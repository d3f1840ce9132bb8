"""Small records in the catalog file beside the tables: ACLs, cluster options, server tags, records that expire.

ACLs, options and tags are part of what a `Catalog` shows, so each change moves the change number and the number of
its section; records that expire are read from the file by the coordinator alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from fluss.errors import ErrorCode, FlussError
from fluss.model.paths import TablePath
from fluss.model.permissions import ResourceType
from fluss.server.catalog.database_file import DatabaseFile

ACL_LIMIT_ROWS = 100_000
EXPIRING_RECORDS_LIMIT_ROWS = 100_000
LAST_TIME_MS = 2**63 - 1

ACL_SECTION = "acl_change"
CONFIG_SECTION = "config_change"
TAG_SECTION = "tag_change"


class Acl(NamedTuple):
    """One permission: `principal` may do `operation` on a resource, coming from `host`."""

    resource_type: int
    resource_name: str
    principal_type: str
    principal_name: str
    host: str
    operation: int
    permission: int


class AclRecords:
    """The access control list."""

    def __init__(self, file: DatabaseFile) -> None:
        self._file = file

    def add(self, acls: Iterable[Acl]) -> None:
        """Add permissions; those that exist already stay."""
        with self._file.transaction() as connection:
            connection.executemany("INSERT OR IGNORE INTO acls VALUES (?, ?, ?, ?, ?, ?, ?)", acls)
            (count,) = connection.execute("SELECT count(*) FROM acls").fetchone()
            if count > ACL_LIMIT_ROWS:
                raise FlussError(
                    f"there would be {count} ACLs, the limit is {ACL_LIMIT_ROWS}; use '*' as resource or drop some",
                    ErrorCode.CONFIG_EXCEPTION,
                )
            self._file.set_counter(ACL_SECTION, self._file.next_change())

    def remove(self, acls: Iterable[Acl]) -> None:
        """Remove permissions; those that do not exist are no error."""
        with self._file.transaction() as connection:
            connection.executemany(
                "DELETE FROM acls WHERE resource_type = ? AND resource_name = ? AND principal_type = ? "
                "AND principal_name = ? AND host = ? AND operation = ? AND permission = ?",
                acls,
            )
            self._file.set_counter(ACL_SECTION, self._file.next_change())

    def remove_for_table(self, path: TablePath) -> None:
        """Permissions end with their table: the next one of that name is another. Inside of the drop's transaction."""
        self._end("resource_type = ? AND resource_name = ?", (ResourceType.TABLE, str(path)))

    def remove_for_database(self, name: str) -> None:
        """The same for a database and all names of tables in it."""
        self._end("resource_type = ? AND resource_name = ?", (ResourceType.DATABASE, name))
        tables = f"{name}."
        self._end("resource_type = ? AND substr(resource_name, 1, ?) = ?", (ResourceType.TABLE, len(tables), tables))

    def _end(self, condition: str, values: tuple[object, ...]) -> None:
        if self._file.connection.execute(f"DELETE FROM acls WHERE {condition}", values).rowcount:
            self._file.set_counter(ACL_SECTION, self._file.next_change())

    def all(self) -> list[Acl]:
        """Every permission."""
        return [Acl(*row) for row in self._file.rows("SELECT * FROM acls")]


class SettingRecords:
    """Cluster options set at run time, and tags of tablet servers."""

    def __init__(self, file: DatabaseFile) -> None:
        self._file = file

    def change_config(self, changes: Mapping[str, str | None]) -> None:
        """Set options; None takes one away again."""
        with self._file.transaction() as connection:
            for key, value in changes.items():
                if value is None:
                    connection.execute("DELETE FROM cluster_config WHERE key = ?", (key,))
                else:
                    connection.execute("INSERT OR REPLACE INTO cluster_config VALUES (?, ?)", (key, value))
            self._file.set_counter(CONFIG_SECTION, self._file.next_change())

    def config(self) -> dict[str, str]:
        """The options that were set at run time."""
        return dict(self._file.rows("SELECT key, value FROM cluster_config ORDER BY key"))

    def change_tags(self, changes: Mapping[int, int | None]) -> None:
        """Tag servers; None takes the tag away."""
        with self._file.transaction() as connection:
            for server_id, tag in changes.items():
                if tag is None:
                    connection.execute("DELETE FROM server_tags WHERE server_id = ?", (server_id,))
                else:
                    connection.execute("INSERT OR REPLACE INTO server_tags VALUES (?, ?)", (server_id, tag))
            self._file.set_counter(TAG_SECTION, self._file.next_change())

    def tags(self) -> dict[int, int]:
        """Tag by server id."""
        return dict(self._file.rows("SELECT server_id, tag FROM server_tags"))


class ExpiringRecords:
    """JSON documents under a caller's id, each with a time after which it counts as absent."""

    def __init__(self, file: DatabaseFile, table: str, key_column: str, value_column: str) -> None:
        self._file = file
        self._table = table
        self._key = key_column
        self._value = value_column

    def get(self, key: str, now_ms: int) -> tuple[str, int] | None:
        """Document and expiration time, or None when absent or expired."""
        row = self._file.row(f"SELECT {self._value}, expiration_time FROM {self._table} WHERE {self._key} = ?", (key,))
        return None if row is None or row[1] <= now_ms else (row[0], row[1])

    def put(self, key: str, document: str, expiration_time: int, now_ms: int) -> None:
        """Store or replace a document; expired ones make room first. "For ever" is what SQLite can still hold."""
        expiration_time = min(expiration_time, LAST_TIME_MS)
        with self._file.transaction() as connection:
            connection.execute(f"DELETE FROM {self._table} WHERE expiration_time <= ?", (now_ms,))
            connection.execute(
                f"INSERT OR REPLACE INTO {self._table} VALUES (?, ?, ?)", (key, document, expiration_time)
            )
            (count,) = connection.execute(f"SELECT count(*) FROM {self._table}").fetchone()
            if count > EXPIRING_RECORDS_LIMIT_ROWS:
                raise FlussError(
                    f"{self._table} already holds {EXPIRING_RECORDS_LIMIT_ROWS} entries; delete some or wait until "
                    "they expire",
                    ErrorCode.STORAGE_EXCEPTION,
                )

    def total_bytes(self) -> int:
        """The size of all documents, expired ones that are not purged yet included."""
        statement = f"SELECT ifnull(sum(length({self._value})), 0) FROM {self._table}"
        return int(self._file.row(statement)[0])

    def delete(self, key: str) -> None:
        """Remove a document; absent is no error."""
        with self._file.transaction() as connection:
            connection.execute(f"DELETE FROM {self._table} WHERE {self._key} = ?", (key,))

    def purge(self, now_ms: int) -> None:
        """Remove what has expired."""
        statement = f"SELECT 1 FROM {self._table} WHERE expiration_time <= ? LIMIT 1"
        if self._file.row(statement, (now_ms,)) is None:
            return
        with self._file.transaction() as connection:
            connection.execute(f"DELETE FROM {self._table} WHERE expiration_time <= ?", (now_ms,))

    def all(self, now_ms: int) -> dict[str, str]:
        """Documents that have not expired, by key."""
        statement = f"SELECT {self._key}, {self._value} FROM {self._table} WHERE expiration_time > ?"
        return dict(self._file.rows(statement, (now_ms,)))
