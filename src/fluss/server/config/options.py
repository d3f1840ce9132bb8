"""The server options: Apache Fluss's names, what they default to, and whether one machine honours them.

This table is the only place that knows option names. `config` reads values by it, ``docs/configuration.md`` is
generated from it, and a test checks that every honoured option is used somewhere in the server.

An option either has an ``attribute`` (the name of its field in `ServerConfig`), or is ``special`` (several options
are put together into one field, like the listeners), or has no effect on one machine: then it is accepted and one
warning line says so, because a ``server.yaml`` written for a cluster must start this server. A `Family` accepts
every name with its prefix, for libraries whose settings are passed through or ignored as a whole.
"""

from __future__ import annotations

from fluss.server.config.kv_options import KV_OPTIONS
from fluss.server.config.lake_options import LAKE_OPTIONS
from fluss.server.config.log_options import LOG_OPTIONS
from fluss.server.config.option import Family, Kind, Option
from fluss.server.config.staged_options import STAGED_OPTIONS

STRING, INTEGER, BOOLEAN, DURATION, SIZE, CHOICE = Kind

_LISTENERS = [
    Option(
        "bind.listeners",
        STRING,
        None,
        "where to listen: `NAME://host:port, ...`; port 0 takes a free one",
        special=True,
    ),
    Option("advertised.listeners", STRING, None, "addresses told to clients, by listener name", special=True),
    Option("internal.listener.name", STRING, "FLUSS", "listener whose requests skip ACL checks", special=True),
    Option("coordinator.host", STRING, None, "older way to name the one listener FLUSS", special=True),
    Option("coordinator.port", STRING, "9123", "port of the one listener FLUSS", special=True),
    Option(
        "tablet-server.host",
        STRING,
        None,
        "used as host of the listener FLUSS if `coordinator.host` is not set",
        special=True,
    ),
    Option(
        "tablet-server.port",
        INTEGER,
        "0",
        "first port of the tablets: tablet i takes the next ones, one per listener; 0 takes free ones",
        attribute="tablet_first_port",
        minimum=0,
    ),
    Option("server.tablets", INTEGER, "1", "number of tablet processes", attribute="tablet_count", minimum=1, own=True),
    Option(
        "server.hang-timeout",
        DURATION,
        "30 s",
        "a process that hangs is killed and started again after this time; after half of it its stacks are logged",
        attribute="hang_timeout_ms",
        minimum=4_000,
        own=True,
    ),
    Option("tablet-server.id", INTEGER, None, "ids are given by this server: 0 and up"),
    Option("tablet-server.rack", STRING, None, "rack in metadata answers", attribute="rack"),
]

_TABLES = [
    Option(
        "default.bucket.number",
        INTEGER,
        "1",
        "buckets of a table that does not say",
        attribute="default_bucket_number",
        minimum=1,
    ),
    Option(
        "default.replication.factor",
        INTEGER,
        "1",
        "replicas of a table that does not say; one machine keeps one, larger values count as 1",
        attribute="default_replication_factor",
        minimum=1,
    ),
    Option(
        "max.partition.num",
        INTEGER,
        "1000",
        "partitions of one table at most",
        attribute="max_partition_num",
        minimum=1,
    ),
    Option(
        "max.bucket.num",
        INTEGER,
        "128000",
        "buckets of one table or partition at most",
        attribute="max_bucket_num",
        minimum=1,
    ),
    Option(
        "allow.create.log.tables",
        BOOLEAN,
        "true",
        "whether log tables may be created",
        attribute="allow_create_log_tables",
    ),
    Option(
        "allow.create.kv.tables",
        BOOLEAN,
        "true",
        "whether primary-key tables may be created",
        attribute="allow_create_kv_tables",
    ),
    Option(
        "auto-partition.check.interval",
        DURATION,
        "10 min",
        "time between looks for partitions to create or drop",
        attribute="auto_partition_check_interval_ms",
        minimum=1,
    ),
    Option(
        "coordinator.producer-offsets.ttl",
        DURATION,
        "24 h",
        "how long offsets registered by a producer are kept",
        attribute="producer_offsets_ttl_ms",
        minimum=1,
    ),
    Option(
        "coordinator.producer-offsets.cleanup-interval",
        DURATION,
        "1 h",
        "time between looks for expired producer offsets",
        attribute="producer_offsets_cleanup_interval_ms",
        minimum=1,
    ),
]

_NETWORK = [
    Option(
        "netty.server.max-request-size",
        SIZE,
        "100mb",
        "larger requests are refused",
        attribute="max_request_size",
        minimum=1024,
    ),
    Option(
        "netty.connection.max-idle-time",
        DURATION,
        "10 min",
        "silent connections are closed after this time",
        attribute="connection_max_idle_ms",
        minimum=1,
    ),
    Option(
        "server.max-connections",
        INTEGER,
        "4096",
        "connections per process",
        attribute="max_connections",
        minimum=1,
        own=True,
    ),
]

_SECURITY = [
    Option(
        "security.protocol.map",
        STRING,
        None,
        "`LISTENER:sasl, ...`; a listener without entry is PLAINTEXT",
        special=True,
    ),
    Option(
        "security.sasl.enabled.mechanisms",
        STRING,
        None,
        "`plain`; needed as soon as a listener is `sasl`",
        special=True,
    ),
    Option(
        "security.sasl.plain.jaas.config",
        STRING,
        None,
        'users: `... required user_<name>="<password>" ...;`',
        special=True,
    ),
    Option(
        "security.sasl.plain.credentials",
        STRING,
        None,
        "users: `name:password,...`; wins over the line above",
        special=True,
    ),
    Option("super.users", STRING, None, "`User:admin;User:ops`: never checked against ACLs", special=True),
    Option("authorizer.enabled", BOOLEAN, "false", "whether ACLs are checked", attribute="authorizer_enabled"),
    Option("authorizer.type", CHOICE, "default", "only the built-in one", special=True, choices=("default",)),
    Option(
        "security.acl.principal.ignore-case",
        BOOLEAN,
        "false",
        "whether names of principals in ACLs ignore case",
        attribute="acl_ignore_case",
    ),
    Option("acl.notification.expiration-time", DURATION, "15 min", "all processes read ACLs from one catalog"),
]

_CLUSTER = [
    Option("bootstrap.servers", STRING, None, "an option of clients"),
    Option("server.io-pool.size", INTEGER, "10", "sized by this server"),
    Option("server.background.threads", INTEGER, "10", "sized by this server"),
    Option("coordinator.io-pool.size", INTEGER, "10", "sized by this server"),
]

_GROUPS = (
    _LISTENERS,
    LOG_OPTIONS,
    _TABLES,
    KV_OPTIONS,
    LAKE_OPTIONS,
    STAGED_OPTIONS,
    _NETWORK,
    _SECURITY,
    _CLUSTER,
)

OPTIONS: dict[str, Option] = {
    option.name: option
    for group in (
        _LISTENERS,
        LOG_OPTIONS,
        _TABLES,
        KV_OPTIONS,
        LAKE_OPTIONS,
        STAGED_OPTIONS,
        _NETWORK,
        _SECURITY,
        _CLUSTER,
    )
    for option in group
}

_UNUSED_FILE_SYSTEMS = ("fs.", "oss.", "obs.", "cos.", "gs.", "azure.", "hadoop.", "dfs.")

FAMILIES: tuple[Family, ...] = (
    Family("security.sasl.listener.name.", "users of one listener: `<listener>.plain.jaas.config`", honoured=True),
    Family("datalake.", "`datalake.<format>.*`: properties of the lake catalog", honoured=True),
    Family("s3.", "access to S3 for `remote.data.dir`; `s3a.*` and `fs.s3a.*` are the same", honoured=True),
    Family("zookeeper.", "the catalog is a file of this server"),
    Family("netty.", "threads and queues are sized by this server"),
    Family("log.replica.", "one machine keeps one replica"),
    Family("server.data-disk.", "writes stop when the disk is full and go on when it has room"),
    Family("server.buffer.", "buffers are sized by this server"),
    Family("coordinator.", "the coordinator is part of this server"),
    Family("tablet-server.", "tablets are part of this server"),
    Family("kv.", "the rest of primary-key storage is tuned by this server"),
    Family("metrics.", "metrics are not reported by this release"),
    Family("plugin.", "there are no plug-ins"),
    Family("kafka.", "the Kafka protocol is not served"),
    Family("lake.", "an option of the tiering service"),
    Family("client.", "an option of clients"),
    Family("table.", "a property of tables: set it on the table"),
    Family("env.", "there is no Java"),
    *(Family(prefix, "access to a file system that is not used") for prefix in _UNUSED_FILE_SYSTEMS),
)

_SECRET_WORDS = ("password", "secret", "jaas", "credential", "access-key", "access.key", "accesskey", "token")


def family_of(name: str) -> Family | None:
    """The family that accepts a name which is not an option of its own."""
    return next((family for family in FAMILIES if name.startswith(family.prefix) and name != family.prefix), None)


def is_secret(name: str) -> bool:
    """Whether the value of an option must never be shown or logged."""
    folded = name.lower()
    return any(word in folded for word in _SECRET_WORDS)
