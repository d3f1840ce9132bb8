"""The permission that each API key requires: a key that is not in this table cannot be served.

The network layer refuses to start a service with a key that is not in `PERMISSIONS`, and `apis.permission_checks` puts
the check of a rule with `Refusal.ERROR` in front of its handler. Where a request names several tables, or its errors
belong to parts of the answer, the handler calls the authorizer itself. Handlers do not pass the operation: the
authorizer looks it up here by the API key of the request.

The permissions are those of Apache Fluss, except that it requires none for the calls of tiering services; here they
need WRITE, because a registered snapshot lets the server delete the rows up to its offsets.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from fluss.model.permissions import Operation
from fluss.protocol.api_keys import ApiKey


class On(Enum):
    """The resource that the permission is about. Comments give the request fields from which it is read."""

    CLUSTER = "cluster"
    DATABASE = "database"  # `database_name`
    DATABASE_OF_TABLE = "database of the table"  # `table_path`
    TABLE = "table"  # `table_path` or `table_id`
    EACH_TABLE = "each table"
    ANY_TABLE = "at least one table"
    EACH_DATABASE = "each database"
    EACH_RESOURCE = "each resource"
    NOTHING = "-"


class Refusal(Enum):
    """The answer to a caller without the permission."""

    ERROR = "error 48"  # checked before the handler is called
    ERROR_BY_HANDLER = "error 48, all or nothing"
    PART = "error 48 for the table or bucket"
    LEFT_OUT = "left out of the answer"
    NEVER = "-"


class Rule(NamedTuple):
    """The permission that one API key requires."""

    operation: Operation | None
    on: On
    refusal: Refusal
    note: str = ""


def _open(note: str) -> Rule:
    return Rule(None, On.NOTHING, Refusal.NEVER, note)


_DESCRIBE_TABLE = Rule(Operation.DESCRIBE, On.TABLE, Refusal.ERROR)
_DESCRIBE_CLUSTER = Rule(Operation.DESCRIBE, On.CLUSTER, Refusal.ERROR)
_ALTER_CLUSTER = Rule(Operation.ALTER, On.CLUSTER, Refusal.ERROR)
_WRITE_CLUSTER = Rule(Operation.WRITE, On.CLUSTER, Refusal.ERROR)
_WRITE_TABLE = Rule(Operation.WRITE, On.TABLE, Refusal.ERROR)
_READ_PART = Rule(Operation.READ, On.TABLE, Refusal.PART)
_WRITE_PART = Rule(Operation.WRITE, On.TABLE, Refusal.PART)
_READ_EACH = Rule(Operation.READ, On.EACH_TABLE, Refusal.ERROR_BY_HANDLER)
_WRITE_EACH = Rule(Operation.WRITE, On.EACH_TABLE, Refusal.ERROR_BY_HANDLER)
_CHANGE_ACLS = Rule(
    Operation.ALL, On.EACH_RESOURCE, Refusal.ERROR_BY_HANDLER, "of the permissions; for a table: its database"
)

PERMISSIONS: dict[ApiKey, Rule] = {
    ApiKey.API_VERSIONS: _open("also before login"),
    ApiKey.AUTHENTICATE: _open("also before login"),
    # Databases
    ApiKey.CREATE_DATABASE: Rule(Operation.CREATE, On.CLUSTER, Refusal.ERROR),
    ApiKey.ALTER_DATABASE: Rule(Operation.ALTER, On.DATABASE, Refusal.ERROR),
    ApiKey.DROP_DATABASE: Rule(Operation.DROP, On.DATABASE, Refusal.ERROR),
    ApiKey.LIST_DATABASES: Rule(Operation.DESCRIBE, On.EACH_DATABASE, Refusal.LEFT_OUT),
    ApiKey.DATABASE_EXISTS: Rule(
        Operation.DESCRIBE, On.DATABASE, Refusal.LEFT_OUT, "the answer is no; all users see the default database"
    ),
    ApiKey.GET_DATABASE_INFO: Rule(Operation.DESCRIBE, On.DATABASE, Refusal.ERROR),
    # Tables
    ApiKey.CREATE_TABLE: Rule(Operation.CREATE, On.DATABASE_OF_TABLE, Refusal.ERROR),
    ApiKey.ALTER_TABLE: Rule(Operation.ALTER, On.TABLE, Refusal.ERROR),
    ApiKey.DROP_TABLE: Rule(Operation.DROP, On.TABLE, Refusal.ERROR),
    ApiKey.LIST_TABLES: Rule(Operation.DESCRIBE, On.EACH_TABLE, Refusal.LEFT_OUT),
    ApiKey.TABLE_EXISTS: Rule(Operation.DESCRIBE, On.TABLE, Refusal.LEFT_OUT, "the answer is no"),
    ApiKey.GET_METADATA: Rule(Operation.DESCRIBE, On.EACH_TABLE, Refusal.LEFT_OUT, "all users see the servers"),
    ApiKey.GET_TABLE_INFO: _DESCRIBE_TABLE,
    ApiKey.GET_TABLE_SCHEMA: _DESCRIBE_TABLE,
    ApiKey.CREATE_PARTITION: _WRITE_TABLE,
    ApiKey.DROP_PARTITION: _WRITE_TABLE,
    ApiKey.LIST_PARTITION_INFOS: _DESCRIBE_TABLE,
    # Rows
    ApiKey.PRODUCE_LOG: _WRITE_PART,
    ApiKey.PUT_KV: _WRITE_PART,
    ApiKey.INIT_WRITER: Rule(Operation.WRITE, On.ANY_TABLE, Refusal.ERROR_BY_HANDLER, "of those in the request"),
    ApiKey.FETCH_LOG: _READ_PART,
    ApiKey.LOOKUP: _READ_PART._replace(note="and WRITE if it inserts missing rows"),
    ApiKey.PREFIX_LOOKUP: _READ_PART,
    ApiKey.LIMIT_SCAN: _READ_PART,
    ApiKey.SCAN_KV: _READ_PART,
    ApiKey.SCAN_KV_RANGE: _READ_PART,
    ApiKey.SPLIT_KV: Rule(Operation.READ, On.TABLE, Refusal.ERROR),
    ApiKey.GET_TABLE_STATS: _READ_PART,
    ApiKey.LIST_OFFSETS: _DESCRIBE_TABLE,
    # Staged appends
    ApiKey.STAGE_LOG: _WRITE_PART,
    ApiKey.PREPARE_STAGED: _WRITE_TABLE,
    ApiKey.DECIDE_STAGED: _WRITE_TABLE,
    ApiKey.APPLY_STAGED: _WRITE_TABLE,
    ApiKey.ABORT_STAGED: _WRITE_TABLE,
    ApiKey.GET_STAGED_COMMIT: _WRITE_TABLE,
    # Producer offsets
    ApiKey.REGISTER_PRODUCER_OFFSETS: _WRITE_EACH,
    ApiKey.GET_PRODUCER_OFFSETS: Rule(Operation.READ, On.EACH_TABLE, Refusal.LEFT_OUT),
    ApiKey.DELETE_PRODUCER_OFFSETS: _WRITE_EACH,
    # Snapshots
    ApiKey.GET_LATEST_KV_SNAPSHOTS: _DESCRIBE_TABLE,
    ApiKey.GET_KV_SNAPSHOT_METADATA: _DESCRIBE_TABLE,
    ApiKey.LIST_KV_SNAPSHOTS: _DESCRIBE_TABLE,
    ApiKey.LIST_REMOTE_LOG_MANIFESTS: _DESCRIBE_TABLE,
    ApiKey.ACQUIRE_KV_SNAPSHOT_LEASE: _READ_EACH,
    ApiKey.RELEASE_KV_SNAPSHOT_LEASE: _READ_EACH,
    ApiKey.DROP_KV_SNAPSHOT_LEASE: _READ_EACH,
    ApiKey.GET_FILESYSTEM_SECURITY_TOKEN: Rule(
        Operation.READ, On.ANY_TABLE, Refusal.LEFT_OUT, "the keys of the object store"
    ),
    # The lake
    ApiKey.GET_LAKE_SNAPSHOT: _DESCRIBE_TABLE,
    ApiKey.LAKE_TIERING_HEARTBEAT: Rule(
        Operation.WRITE, On.EACH_TABLE, Refusal.PART, "the caller is given only tables that it may write"
    ),
    ApiKey.PREPARE_LAKE_TABLE_SNAPSHOT: Rule(Operation.WRITE, On.EACH_TABLE, Refusal.PART),
    ApiKey.COMMIT_LAKE_TABLE_SNAPSHOT: Rule(Operation.WRITE, On.EACH_TABLE, Refusal.PART),
    # The cluster
    ApiKey.CREATE_ACLS: _CHANGE_ACLS,
    ApiKey.DROP_ACLS: _CHANGE_ACLS,
    ApiKey.LIST_ACLS: Rule(Operation.DESCRIBE, On.EACH_RESOURCE, Refusal.LEFT_OUT),
    ApiKey.DESCRIBE_CLUSTER_CONFIGS: _DESCRIBE_CLUSTER,
    ApiKey.ALTER_CLUSTER_CONFIGS: _ALTER_CLUSTER,
    ApiKey.GET_CLUSTER_HEALTH: _DESCRIBE_CLUSTER,
    ApiKey.ADD_SERVER_TAG: _ALTER_CLUSTER,
    ApiKey.REMOVE_SERVER_TAG: _ALTER_CLUSTER,
    ApiKey.REBALANCE: _WRITE_CLUSTER,
    ApiKey.LIST_REBALANCE_PROGRESS: _DESCRIBE_CLUSTER,
    ApiKey.CANCEL_REBALANCE: _WRITE_CLUSTER,
}


def rule_of(api_key: int) -> Rule:
    """Return the rule of a key; ValueError if it has none."""
    rule = PERMISSIONS.get(ApiKey(api_key))
    if rule is None:
        raise ValueError(
            f"API key {ApiKey(api_key).name} has no permission rule; declare one in fluss.server.security.permissions"
        )
    return rule
