"""The server options: names as in Apache Fluss, defaults, and whether they have an effect on one machine.

Option names are declared only in this table. `server_config` parses values with it, ``docs/configuration.md`` is
generated from it, and a test checks that every option with an effect is used somewhere in the server.

An option either has an ``attribute`` (the name of its field in `ServerConfig`), or is ``special`` (several options form
one field, like the listeners), or has no effect on one machine: then it is accepted with one line of warning, because a
``server.yaml`` written for a cluster must start this server. A `Family` accepts every name with its prefix, for
libraries whose settings are passed through or ignored as a whole.
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
        "addresses to listen on: `NAME://host:port, ...`; port 0 takes a free one",
        special=True,
    ),
    Option("advertised.listeners", STRING, None, "addresses for clients: `NAME://host:port, ...`", special=True),
    Option("internal.listener.name", STRING, "FLUSS", "listener whose requests skip ACL checks", special=True),
    Option(
        "coordinator.host",
        STRING,
        None,
        "older form of `bind.listeners`: host of the listener FLUSS",
        special=True,
    ),
    Option("coordinator.port", STRING, "9123", "port of the listener FLUSS", special=True),
    Option(
        "tablet-server.host",
        STRING,
        None,
        "host of the listener FLUSS if `coordinator.host` is not set",
        special=True,
    ),
    Option(
        "tablet-server.port",
        INTEGER,
        "0",
        "first port of the tablets, which take one port each per listener, in order; 0 takes free ones",
        attribute="tablet_first_port",
        minimum=0,
    ),
    Option("server.tablets", INTEGER, "1", "number of tablet processes", attribute="tablet_count", minimum=1, own=True),
    Option(
        "server.hang-timeout",
        DURATION,
        "30 s",
        "a hung process is killed and restarted after this time; after half of it, its stacks are logged",
        attribute="hang_timeout_ms",
        minimum=4_000,
        own=True,
    ),
    Option("tablet-server.id", INTEGER, None, "this server assigns the ids, starting at 0"),
    Option("tablet-server.rack", STRING, None, "rack in metadata answers", attribute="rack"),
]

_TABLES = [
    Option(
        "default.bucket.number",
        INTEGER,
        "1",
        "number of buckets of tables that do not set it",
        attribute="default_bucket_number",
        minimum=1,
    ),
    Option(
        "default.replication.factor",
        INTEGER,
        "1",
        "number of replicas of tables that do not set it; one machine keeps one, so larger values count as 1",
        attribute="default_replication_factor",
        minimum=1,
    ),
    Option(
        "max.partition.num",
        INTEGER,
        "1000",
        "maximum number of partitions of a table",
        attribute="max_partition_num",
        minimum=1,
    ),
    Option(
        "max.bucket.num",
        INTEGER,
        "128000",
        "maximum number of buckets of a table or partition",
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
        "interval of checks for partitions to create or drop",
        attribute="auto_partition_check_interval_ms",
        minimum=1,
    ),
    Option(
        "coordinator.producer-offsets.ttl",
        DURATION,
        "24 h",
        "how long registered producer offsets are kept",
        attribute="producer_offsets_ttl_ms",
        minimum=1,
    ),
    Option(
        "coordinator.producer-offsets.cleanup-interval",
        DURATION,
        "1 h",
        "interval of checks for expired producer offsets",
        attribute="producer_offsets_cleanup_interval_ms",
        minimum=1,
    ),
]

_NETWORK = [
    Option(
        "netty.server.max-request-size",
        SIZE,
        "100mb",
        "maximum size of a request; larger ones are refused",
        attribute="max_request_size",
        minimum=1024,
    ),
    Option(
        "netty.connection.max-idle-time",
        DURATION,
        "10 min",
        "idle connections are closed after this time",
        attribute="connection_max_idle_ms",
        minimum=1,
    ),
    Option(
        "server.max-connections",
        INTEGER,
        "4096",
        "maximum number of connections per process",
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
        "`LISTENER:sasl, ...`; listeners without an entry are PLAINTEXT",
        special=True,
    ),
    Option(
        "security.sasl.enabled.mechanisms",
        STRING,
        None,
        "`plain`; required if any listener is `sasl`",
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
        "users: `name:password,...`; takes precedence over `security.sasl.plain.jaas.config`",
        special=True,
    ),
    Option("super.users", STRING, None, "users without ACL checks: `User:admin;User:ops`", special=True),
    Option("authorizer.enabled", BOOLEAN, "false", "whether ACLs are checked", attribute="authorizer_enabled"),
    Option("authorizer.type", CHOICE, "default", "only the built-in authorizer", special=True, choices=("default",)),
    Option(
        "security.acl.principal.ignore-case",
        BOOLEAN,
        "false",
        "whether principal names in ACLs ignore case",
        attribute="acl_ignore_case",
    ),
    Option("acl.notification.expiration-time", DURATION, "15 min", "all processes read ACLs from one catalog"),
]

_CLUSTER = [
    Option("bootstrap.servers", STRING, None, "an option of clients"),
    Option("server.io-pool.size", INTEGER, "10", "this server sizes its pools"),
    Option("server.background.threads", INTEGER, "10", "this server sizes its pools"),
    Option("coordinator.io-pool.size", INTEGER, "10", "this server sizes its pools"),
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
    Family("netty.", "this server sizes threads and queues"),
    Family("log.replica.", "one machine keeps one replica"),
    Family("server.data-disk.", "writes stop when the disk is full and continue when it has space again"),
    Family("server.buffer.", "this server sizes its buffers"),
    Family("coordinator.", "the coordinator is built into this server"),
    Family("tablet-server.", "tablets are built into this server"),
    Family("kv.", "this server tunes the rest of primary-key storage"),
    Family("metrics.", "this release reports no metrics"),
    Family("plugin.", "this server has no plug-ins"),
    Family("kafka.", "this server does not speak the Kafka protocol"),
    Family("lake.", "an option of the tiering service"),
    Family("client.", "an option of clients"),
    Family("table.", "a property of tables: set it on the table"),
    Family("env.", "this server does not run on Java"),
    *(Family(prefix, "access to a file system that is not used") for prefix in _UNUSED_FILE_SYSTEMS),
)

_SECRET_WORDS = ("password", "secret", "jaas", "credential", "access-key", "access.key", "accesskey", "token")


def family_of(name: str) -> Family | None:
    """Return the family that accepts an option name, or None. The caller first looks for an option of that name."""
    return next((family for family in FAMILIES if name.startswith(family.prefix) and name != family.prefix), None)


def is_secret(name: str) -> bool:
    """True if the value of an option must never be shown or logged."""
    folded = name.lower()
    return any(word in folded for word in _SECRET_WORDS)
