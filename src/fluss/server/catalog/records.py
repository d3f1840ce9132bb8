"""Small records in the catalog file: ACLs, cluster options, server tags, and records that expire.

ACLs, options and tags are part of what a `Catalog` shows, so each change raises the change number and the number of
its section. Only the coordinator reads records that expire, directly from the file.
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
# Before 2024 a clock is not set: it shows nothing about the end of a record.
FIRST_PLAUSIBLE_TIME_MS = 1_704_067_200_000

ACL_SECTION = "acl_change"
CONFIG_SECTION = "config_change"
TAG_SECTION = "tag_change"


class Acl(NamedTuple):
    """One permission: the principal may do `operation` on the resource when it connects from `host`."""

    resource_type: int
    resource_name: str
    principal_type: str
    principal_name: str
    host: str
    operation: int
    permission: int


class AclRecords:
    """The ACLs in the catalog, stored one permission per row."""

    def __init__(self, file: DatabaseFile) -> None:
        self._file = file

    def add(self, acls: Iterable[Acl]) -> None:
        """Add permissions; those that exist already stay as they are."""
        with self._file.transaction() as connection:
            connection.executemany("INSERT OR IGNORE INTO acls VALUES (?, ?, ?, ?, ?, ?, ?)", acls)
            (count,) = connection.execute("SELECT count(*) FROM acls").fetchone()
            if count > ACL_LIMIT_ROWS:
                raise FlussError(
                    f"{count} ACLs exceed the limit of {ACL_LIMIT_ROWS}; use '*' as the resource or drop some",
                    ErrorCode.CONFIG_EXCEPTION,
                )
            self._file.set_counter(ACL_SECTION, self._file.next_change())

    def remove(self, acls: Iterable[Acl]) -> None:
        """Remove permissions; missing ones are ignored."""
        with self._file.transaction() as connection:
            connection.executemany(
                "DELETE FROM acls WHERE resource_type = ? AND resource_name = ? AND principal_type = ? "
                "AND principal_name = ? AND host = ? AND operation = ? AND permission = ?",
                acls,
            )
            self._file.set_counter(ACL_SECTION, self._file.next_change())

    def remove_for_table(self, path: TablePath) -> None:
        """Remove the permissions on a dropped table, so that a new table of that name does not inherit them.

        Call within the transaction that drops the table.
        """
        self._end("resource_type = ? AND resource_name = ?", (ResourceType.TABLE, str(path)))

    def remove_for_database(self, name: str) -> None:
        """Remove the permissions on a dropped database and its tables. Call within the transaction that drops it."""
        self._end("resource_type = ? AND resource_name = ?", (ResourceType.DATABASE, name))
        tables = f"{name}."
        self._end("resource_type = ? AND substr(resource_name, 1, ?) = ?", (ResourceType.TABLE, len(tables), tables))

    def _end(self, condition: str, values: tuple[object, ...]) -> None:
        if self._file.connection.execute(f"DELETE FROM acls WHERE {condition}", values).rowcount:
            self._file.set_counter(ACL_SECTION, self._file.next_change())

    def all(self) -> list[Acl]:
        """Return all permissions."""
        return [Acl(*row) for row in self._file.rows("SELECT * FROM acls")]


class SettingRecords:
    """Cluster options that were set at run time, and tags of tablet servers."""

    def __init__(self, file: DatabaseFile) -> None:
        self._file = file

    def change_config(self, changes: Mapping[str, str | None]) -> None:
        """Set options; None removes one."""
        with self._file.transaction() as connection:
            for key, value in changes.items():
                if value is None:
                    connection.execute("DELETE FROM cluster_config WHERE key = ?", (key,))
                else:
                    connection.execute("INSERT OR REPLACE INTO cluster_config VALUES (?, ?)", (key, value))
            self._file.set_counter(CONFIG_SECTION, self._file.next_change())

    def config(self) -> dict[str, str]:
        """Return the options that were set at run time."""
        return dict(self._file.rows("SELECT key, value FROM cluster_config ORDER BY key"))

    def change_tags(self, changes: Mapping[int, int | None]) -> None:
        """Tag servers; None removes the tag."""
        with self._file.transaction() as connection:
            for server_id, tag in changes.items():
                if tag is None:
                    connection.execute("DELETE FROM server_tags WHERE server_id = ?", (server_id,))
                else:
                    connection.execute("INSERT OR REPLACE INTO server_tags VALUES (?, ?)", (server_id, tag))
            self._file.set_counter(TAG_SECTION, self._file.next_change())

    def tags(self) -> dict[int, int]:
        """Return the tags of tablet servers, as server id -> tag."""
        return dict(self._file.rows("SELECT server_id, tag FROM server_tags"))


class ExpiringRecords:
    """JSON documents by id, each with a time from which on it counts as absent."""

    def __init__(self, file: DatabaseFile, table: str, key_column: str, value_column: str) -> None:
        self._file = file
        self._table = table
        self._key = key_column
        self._value = value_column

    def get(self, key: str, now_ms: int) -> tuple[str, int] | None:
        """Return a document and its expiration time; None if there is no document or it has expired."""
        row = self._file.row(f"SELECT {self._value}, expiration_time FROM {self._table} WHERE {self._key} = ?", (key,))
        return None if row is None or row[1] <= now_ms else (row[0], row[1])

    def put(self, key: str, document: str, expiration_time: int, now_ms: int) -> None:
        """Store or replace a document, after removing expired ones. Times beyond SQLite's range are capped."""
        expiration_time = min(expiration_time, LAST_TIME_MS)
        with self._file.transaction() as connection:
            connection.execute(f"DELETE FROM {self._table} WHERE expiration_time <= ?", (now_ms,))
            connection.execute(
                f"INSERT OR REPLACE INTO {self._table} VALUES (?, ?, ?)", (key, document, expiration_time)
            )
            (count,) = connection.execute(f"SELECT count(*) FROM {self._table}").fetchone()
            if count > EXPIRING_RECORDS_LIMIT_ROWS:
                raise FlussError(
                    f"{self._table} is full: its limit is {EXPIRING_RECORDS_LIMIT_ROWS} entries; delete some or wait "
                    "until they expire",
                    ErrorCode.STORAGE_EXCEPTION,
                )

    def limit(self, longest_ms: int, now_ms: int) -> int:
        """End records at most `longest_ms` from now; return how many ended later.

        Only a clock that was ahead when they were stored makes such records. They would be kept for as long as it was.
        """
        latest = now_ms + longest_ms
        statement = f"SELECT 1 FROM {self._table} WHERE expiration_time > ? LIMIT 1"
        if now_ms < FIRST_PLAUSIBLE_TIME_MS or self._file.row(statement, (latest,)) is None:
            return 0
        with self._file.transaction() as connection:
            return connection.execute(
                f"UPDATE {self._table} SET expiration_time = ? WHERE expiration_time > ?", (latest, latest)
            ).rowcount

    def total_bytes(self) -> int:
        """Return the size of all documents, including expired ones that were not purged yet."""
        statement = f"SELECT ifnull(sum(length({self._value})), 0) FROM {self._table}"
        return int(self._file.row(statement)[0])

    def delete(self, key: str) -> None:
        """Remove a document; ignored if absent."""
        with self._file.transaction() as connection:
            connection.execute(f"DELETE FROM {self._table} WHERE {self._key} = ?", (key,))

    def purge(self, now_ms: int) -> None:
        """Remove expired documents."""
        statement = f"SELECT 1 FROM {self._table} WHERE expiration_time <= ? LIMIT 1"
        if self._file.row(statement, (now_ms,)) is None:
            return
        with self._file.transaction() as connection:
            connection.execute(f"DELETE FROM {self._table} WHERE expiration_time <= ?", (now_ms,))

    def all(self, now_ms: int) -> dict[str, str]:
        """Return the documents that have not expired, by key."""
        statement = f"SELECT {self._key}, {self._value} FROM {self._table} WHERE expiration_time > ?"
        return dict(self._file.rows(statement, (now_ms,)))
