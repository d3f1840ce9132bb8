"""The names that are allowed for databases, tables, partitions, producers and columns."""

from __future__ import annotations

import re

from fluss.errors import ErrorCode, FlussError

MAX_NAME_LENGTH_CHARACTERS = 200
# The longest part of a partition's name that is used in the names of its directories.
DIRECTORY_NAME_LIMIT_CHARACTERS = 200
# A cursor is stored under the id of a producer, which consists of this name and the id of the table.
MAX_CURSOR_NAME_CHARACTERS = 160
INTERNAL_NAME_PREFIX = "__"
PARTITION_NAME_SEPARATOR = "$"
DEFAULT_DATABASE = "fluss"
# The partition that answers lookups of expired partitions; only the server creates it, and it is never listed.
HISTORICAL_PARTITION = "__historical__"

RESERVED_COLUMN_NAMES: frozenset[str] = frozenset(
    {"__offset", "__timestamp", "__bucket", "_change_type", "_log_offset", "_commit_timestamp"}
)

_ALLOWED = re.compile(r"[a-zA-Z0-9_-]+")
_ALLOWED_TEXT = "ASCII letters, digits, '_' and '-'"


def broken_name_rule(name: str, *, internal_prefix_allowed: bool = False) -> str | None:
    """The rule that `name` breaks, as the second half of an error message; None if the name is allowed."""
    if not name:
        return "it is empty"
    if name in (".", ".."):
        return "'.' and '..' are not allowed"
    if len(name) > MAX_NAME_LENGTH_CHARACTERS:
        return f"it has {len(name)} characters, at most {MAX_NAME_LENGTH_CHARACTERS} are allowed"
    if _ALLOWED.fullmatch(name) is None:
        return f"it contains characters other than {_ALLOWED_TEXT}"
    if name.startswith(INTERNAL_NAME_PREFIX) and not internal_prefix_allowed:
        return f"names that start with {INTERNAL_NAME_PREFIX!r} are reserved for the server"
    return None


def check_database_name(name: str) -> None:
    """Raise code 16 unless `name` may be the name of a database."""
    _check("database name", name, ErrorCode.INVALID_DATABASE_EXCEPTION)


def check_table_name(name: str) -> None:
    """Raise code 15 unless `name` may be the name of a table."""
    _check("table name", name, ErrorCode.INVALID_TABLE_EXCEPTION)


def check_partition_value(key: str, value: str, *, internal_prefix_allowed: bool = False) -> None:
    """Raise code 43 unless `value` may be the value of partition key `key`."""
    what = f"value of partition key {key!r}"
    _check(what, value, ErrorCode.PARTITION_SPEC_INVALID_EXCEPTION, internal_prefix_allowed)


def check_producer_id(producer_id: str) -> None:
    """Raise code 63 unless `producer_id` may name a producer."""
    _check("producer id", producer_id, ErrorCode.INVALID_PRODUCER_ID_EXCEPTION, internal_prefix_allowed=True)


def check_cursor_name(name: str) -> None:
    """Raise FlussError unless `name` may name a cursor."""
    if not isinstance(name, str):
        raise FlussError(f"a cursor name must be a string, got {name!r}")
    _check("cursor name", name, ErrorCode.CLIENT_ERROR, internal_prefix_allowed=True)
    if len(name) > MAX_CURSOR_NAME_CHARACTERS:
        limit = MAX_CURSOR_NAME_CHARACTERS
        raise FlussError(f"cursor name {name!r} must have at most {limit} characters, got {len(name)}")


def _check(what: str, name: str, code: ErrorCode, internal_prefix_allowed: bool = False) -> None:
    rule = broken_name_rule(name, internal_prefix_allowed=internal_prefix_allowed)
    if rule is not None:
        shown = name if len(name) <= MAX_NAME_LENGTH_CHARACTERS else name[:MAX_NAME_LENGTH_CHARACTERS] + "..."
        raise FlussError(f"{what} {shown!r} is not allowed: {rule}", code)
