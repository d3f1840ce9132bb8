"""The options of `format("fluss")`: one frozen tree, parsed once from Spark's option map.

Spark passes options as strings with lower-cased keys. `parse_options` turns them into a `FlussOptions`, which is
hashable, can be pickled, and is all that readers and writers receive. Unknown options and invalid values are refused
here, on the driver; the error states the option's name, the value and what is allowed.

Options of the session (`spark.sql.fluss.<option>`, see `fluss.spark.options.session_options`) are defaults. The table
in `fluss.spark.options.applicability` lists the options and the reads and writes that they apply to.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar, cast

from fluss.client.engine.values import ExtraDigits
from fluss.config import Config, option_key
from fluss.errors import FlussError
from fluss.model.names import check_cursor_name
from fluss.model.paths import TablePath
from fluss.spark.java.java_classes import DECLARED_SCHEMA_OPTION, OWN_SCAN_OPTION
from fluss.spark.options.applicability import OPTIONS, Direction, check_direction
from fluss.spark.options.log_positions import Position, parse_position, parse_timestamp
from fluss.spark.options.session_options import DEFAULTS_OPTION, inherited_options

DEFAULT_DATABASE = "fluss"
CLIENT_PREFIX = "client."
ADDRESS_OPTIONS = ("bootstrap.servers", "bootstrapServers", "client.bootstrap.servers")
# Part of the ids of notes at the coordinator, which allow these characters and at most 200 of them.
TRANSACTION_PATTERN = "[A-Za-z0-9_-]{1,100}"
OPEN_END = "open"

DEFAULT_POLL_TIMEOUT_MS = 60_000
"""The default time that a read waits for rows that exist but do not arrive, before it fails."""

Mode = Literal["state", "changelog", "binlog", "lake"]
Delivery = Literal["exactly-once", "at-least-once"]
NanosAs = Literal["microseconds", "bigint"]
# Endings of table names, and the modes that they select.
MODE_SUFFIXES: dict[str, Mode] = {"$changelog": "changelog", "$binlog": "binlog", "$lake": "lake"}
# Names that may follow `$lake`.
LAKE_VIEWS = ("snapshots", "files")

T = TypeVar("T")


@dataclass(frozen=True)
class ClientOptions:
    """How to reach and log in to the cluster: the key of the connection cache."""

    bootstrap_servers: str
    settings: tuple[tuple[str, str], ...] = field(default=(), repr=False)  # may contain a password

    def config(self) -> Config:
        """A new `Config` of the client."""
        return Config({"bootstrap.servers": self.bootstrap_servers, **dict(self.settings)})


@dataclass(frozen=True)
class ReadOptions:
    """Options of batch reads; `start` is shared with streams."""

    start: Position | None = None
    end: Position | None = None
    open_end: bool = False
    """Read rows that arrive after planning too: Spark keeps the plan of a view for as long as the view exists."""
    incremental_start_ms: int | None = None
    incremental_end_ms: int | None = None
    max_records_per_partition: int | None = None
    max_bytes_per_partition: int | None = None
    read_optimized: bool = False
    union: bool | None = None
    """False: do not read the lake. None: read lake and log if the table has a lake."""
    snapshot_id: int | None = None
    as_of_ms: int | None = None
    start_is_for_streams: bool = False  # `start` came from scan.startup.*, which batch reads ignore
    poll_timeout_ms: int = DEFAULT_POLL_TIMEOUT_MS
    skips_bad_batches: bool = False  # applies to streams too


@dataclass(frozen=True)
class StreamOptions:
    """Options of streaming reads."""

    max_rows_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = None
    fail_on_data_loss: bool = True
    cursor: str | None = None
    """The name under which the server keeps the progress of the query."""


@dataclass(frozen=True)
class WriteOptions:
    """Options of batch and streaming writes."""

    row_kind_column: str | None = None
    delivery: Delivery | None = None
    """None: exactly once where the server can, else at least once."""
    transaction: str | None = None
    transaction_batch: int | None = None
    """A batch write with a name and a number is done once, however often it is repeated. Without a name, inside
    `foreachBatch`, the name is that of the query."""
    transaction_is_said: bool = False
    """True if the user gave the number for this write; False if `fluss.spark.foreach_batch` set it."""
    on_extra_digits: ExtraDigits = "error"
    """How to treat digits of a second or of a decimal that a column cannot hold."""


@dataclass(frozen=True)
class FlussOptions:
    """All options of one read or write."""

    table: TablePath
    client: ClientOptions
    columns: tuple[str, ...] | None = None
    limit: int | None = None
    mode: Mode | None = None
    """None: the current state of a primary-key table, or the rows of a log table. `lake`: the lake table as stored."""
    lake_view: str | None = None
    """One of `LAKE_VIEWS`, with mode lake."""
    nanos_as: NanosAs = "microseconds"
    own_scan: bool = False
    """True if the reader serves one query only; set by our Java classes (`spark.java.java_classes`), not by users."""
    declared_schema: str | None = None
    """All columns of the DataFrame as JSON, if the reader is asked for fewer of them; set by our Java classes."""
    read: ReadOptions = ReadOptions()
    stream: StreamOptions = StreamOptions()
    write: WriteOptions = WriteOptions()


_SPELLING = {name.lower(): name for name in OPTIONS}


def parse_options(options: Mapping[str, str], direction: Direction | None = None) -> FlussOptions:
    """Parse the options of one read or write over those of the session; a direction limits which are allowed.

    >>> parse_options({"bootstrap.servers": "localhost:9123", "table": "shop.orders"}).table
    TablePath(database_name='shop', table_name='orders')
    """
    given = _OptionReader(options, inherited_options())
    given.check_names()
    if direction is not None:
        check_direction(given.said, direction)
    table, suffix, view = _table(given)
    mode = cast("Mode | None", given.take(_one_of("state", "changelog", "binlog", "lake"), "mode"))
    if suffix is not None and mode not in (None, MODE_SUFFIXES[suffix]):
        raise FlussError(f"option mode is {mode!r}, but the table name ends with {suffix}: give only one of them")
    return FlussOptions(
        table=table,
        client=_client(given),
        columns=given.take(_column_names, "columns"),
        limit=given.take(_whole_number(0), "limit"),
        mode=mode if suffix is None else MODE_SUFFIXES[suffix],
        lake_view=view,
        nanos_as=cast(NanosAs, given.take(_one_of("microseconds", "bigint"), "nanosAs") or "microseconds"),
        own_scan=OWN_SCAN_OPTION in given.values,
        declared_schema=given.values.get(DECLARED_SCHEMA_OPTION),
        read=_read(given),
        stream=StreamOptions(
            max_rows_per_trigger=given.take(_whole_number(1), "maxRowsPerTrigger"),
            max_bytes_per_trigger=given.take(_whole_number(1), "maxBytesPerTrigger"),
            fail_on_data_loss=given.take(_switch, "failOnDataLoss") is not False,
            cursor=given.take(_cursor, "cursor"),
        ),
        write=_write(given),
    )


class _OptionReader:
    """The options of one read or write by lower-cased name, merged over those of the session.

    `said` has the names given for this read or write. Inherited options are ignored if newer ones are merged already.
    """

    def __init__(self, options: Mapping[str, str], inherited: Mapping[str, str]) -> None:
        lowered = {key.lower(): value for key, value in options.items()}
        defaults = {} if DEFAULTS_OPTION in lowered else inherited
        said_for_all = lowered.pop(DEFAULTS_OPTION, "").split(",")
        self.values = {**defaults, **lowered}
        self.said = lowered.keys() - set(said_for_all)

    def check_names(self) -> None:
        for key in self.values:
            if key in _SPELLING or key.startswith(CLIENT_PREFIX) or key in (OWN_SCAN_OPTION, DECLARED_SCHEMA_OPTION):
                continue
            near = [_SPELLING[name] for name in difflib.get_close_matches(key, _SPELLING, n=3, cutoff=0.6)]
            hint = f"did you mean {' or '.join(near)}" if near else f"its options are {', '.join(sorted(OPTIONS))}"
            raise FlussError(f"format 'fluss' has no option {key!r}: {hint}; client options start with 'client.'")

    def take(self, parse: Callable[[str, str], T], *spellings: str) -> T | None:
        """Return the value under one of several spellings; raise if two spellings have different values."""
        found = [(name, self.values[name.lower()]) for name in spellings if name.lower() in self.values]
        if not found:
            return None
        if len({value for _, value in found}) > 1:
            said = " and ".join(f"{name}={value!r}" for name, value in found)
            raise FlussError(f"options {said} have the same meaning but differ: give only one of them")
        return parse(*found[0])


def _table(given: _OptionReader) -> tuple[TablePath, str | None, str | None]:
    """The table, the ending of its name that selects the mode, and the view after `$lake`."""
    name = given.take(_non_empty, "table", "path")
    if name is None:
        raise FlussError(
            "format 'fluss' needs a table: .option('table', 'database.table') or .load('database.table'). Options of "
            "CREATE TABLE ... USING are not passed to it: use CREATE TEMPORARY VIEW ... USING, or fluss.spark.attach"
        )
    view = next((each for each in LAKE_VIEWS if name.endswith(f"$lake${each}")), None)
    name = name if view is None else name.removesuffix(f"${view}")
    suffix = next((each for each in MODE_SUFFIXES if name.endswith(each)), None)
    name = name.removesuffix(suffix or "")
    parts = name.split(".")
    if len(parts) > 2 or not all(parts):
        raise FlussError(f"option table must be 'database.table' or 'table', got {name!r}")
    return TablePath(parts[0] if len(parts) == 2 else DEFAULT_DATABASE, parts[-1]), suffix, view


def client_options(options: Mapping[str, str]) -> ClientOptions:
    """Parse only the options of a connection, for work that does not belong to one table."""
    given = _OptionReader(options, {})
    given.check_names()
    return _client(given)


def _client(given: _OptionReader) -> ClientOptions:
    servers = given.take(_non_empty, *ADDRESS_OPTIONS)
    if servers is None:
        raise FlussError("format 'fluss' needs the address of a server: .option('bootstrap.servers', 'host:9123')")
    settings: dict[str, tuple[str, str]] = {}
    for key, value in sorted(given.values.items()):
        if not key.startswith(CLIENT_PREFIX) or key == "client.bootstrap.servers":
            continue
        earlier = settings.setdefault(option_key(key), (key, value))
        if earlier[0] == key or (key not in given.said and earlier[0] in given.said):
            continue
        if earlier[1] != value and (key in given.said) == (earlier[0] in given.said):
            raise FlussError(f"options {earlier[0]} and {key} have the same meaning but differ: give only one of them")
        settings[option_key(key)] = (key, value)  # options of this query win over those of the session
    client = ClientOptions(servers, tuple(sorted(settings.values())))
    client.config().validate()  # its error names the option and the allowed values
    return client


def _read(given: _OptionReader) -> ReadOptions:
    zone = given.take(_non_empty, "timeZone") or "UTC"
    open_end = given.values.get("end", "").strip().lower() == OPEN_END

    def position(name: str, value: str) -> Position:
        return parse_position(name, value, zone)

    def moment(name: str, value: str) -> int:
        return parse_timestamp(name, value, zone)

    read = ReadOptions(
        start=_start(given, position, moment),
        end=None if open_end else given.take(position, "end"),
        open_end=open_end,
        incremental_start_ms=given.take(moment, "scan.incremental.start.timestamp"),
        incremental_end_ms=given.take(moment, "scan.incremental.end.timestamp"),
        max_records_per_partition=given.take(_whole_number(1), "scan.maxRecordsPerPartition"),
        max_bytes_per_partition=given.take(_whole_number(1), "scan.maxBytesPerPartition"),
        read_optimized=given.take(_switch, "read.optimized", "read_optimized") is True,
        union=given.take(_switch, "union"),
        snapshot_id=given.take(_whole_number(0), "snapshot_id"),
        as_of_ms=given.take(moment, "as_of"),
        start_is_for_streams="scan.startup.mode" in given.values,
        poll_timeout_ms=given.take(_whole_number(1), "scan.poll.timeout") or DEFAULT_POLL_TIMEOUT_MS,
        skips_bad_batches=given.take(_one_of("error", "skip"), "onBadBatch", "on_bad_batch") == "skip",
    )
    _check_ranges(read)
    _check_lake(read)
    return read


def _check_lake(read: ReadOptions) -> None:
    """Raise if the options choose the lake in two ways, or a snapshot of it together with a start or an end."""
    chosen = {
        "snapshot_id": read.snapshot_id is not None,
        "as_of": read.as_of_ms is not None,
        "read.optimized": read.read_optimized,
        "union": read.union is not None,
    }
    given = [name for name, is_given in chosen.items() if is_given]
    if len(given) > 1:
        raise FlussError(f"options {' and '.join(given)} contradict each other: give only one of them")
    is_range = read.start is not None or read.end is not None or read.incremental_start_ms is not None
    if is_range and given and given[0] in ("snapshot_id", "as_of"):
        raise FlussError(
            f"option {given[0]} reads a snapshot of the lake, which has no start and no end: leave them out"
        )


def _write(given: _OptionReader) -> WriteOptions:
    write = WriteOptions(
        row_kind_column=given.take(_non_empty, "rowKindColumn"),
        delivery=cast("Delivery | None", given.take(_one_of("exactly-once", "at-least-once"), "delivery")),
        transaction=given.take(_transaction_name, "transaction"),
        transaction_batch=given.take(_whole_number(0), "transactionBatch"),
        on_extra_digits=cast(
            "ExtraDigits", given.take(_one_of("error", "truncate"), "onExtraDigits", "on_extra_digits") or "error"
        ),
        transaction_is_said=not given.said.isdisjoint(("transaction", "transactionbatch")),
    )
    if write.transaction is not None and write.transaction_batch is None:
        raise FlussError(f"option transaction={write.transaction!r} needs transactionBatch, a number that only grows")
    return write


def _start(
    given: _OptionReader, position: Callable[[str, str], Position], moment: Callable[[str, str], int]
) -> Position | None:
    """The start from `start`, `starting`, or the two options that Apache Fluss has for it."""
    start = given.take(position, "start", "starting")
    mode = given.take(_one_of("full", "earliest", "latest", "timestamp"), "scan.startup.mode")
    timestamp = given.take(moment, "scan.startup.timestamp")
    if (mode == "timestamp") != (timestamp is not None):
        raise FlussError("scan.startup.mode=timestamp and scan.startup.timestamp go together: give both or neither")
    if mode is None:
        return start
    if start is not None:
        raise FlussError("options start and scan.startup.mode both set the start: give only one of them")
    return Position("timestamp", timestamp_ms=timestamp) if mode == "timestamp" else Position(cast(Any, mode))


def _check_ranges(read: ReadOptions) -> None:
    start, end = read.incremental_start_ms, read.incremental_end_ms
    if end is not None and start is None:
        raise FlussError(f"scan.incremental.end.timestamp={end} needs scan.incremental.start.timestamp: give both")
    if start is not None:
        if end is not None and start >= end:
            raise FlussError(f"scan.incremental: the start must be before the end, got {start} ms and {end} ms")
        if read.read_optimized:
            raise FlussError("scan.incremental.* reads the log and read.optimized skips it: give only one of them")
        if read.start is not None or read.end is not None or read.open_end:
            raise FlussError("scan.incremental.* and start/end both choose a range: give only one of them")
    if read.end is not None and read.end.kind == "full":
        raise FlussError("option end must be earliest, latest, timestamp:<time> or offsets as JSON, got 'full'")


# ---- values ----


def _non_empty(name: str, value: str) -> str:
    if not value.strip():
        raise FlussError(f"option {name} must not be empty, got {value!r}")
    return value.strip()


def _transaction_name(name: str, value: str) -> str:
    if re.fullmatch(TRANSACTION_PATTERN, value.strip()) is None:
        raise FlussError(f"option {name} must be 1 to 100 letters, digits, - and _, got {value!r}")
    return value.strip()


def _column_names(name: str, value: str) -> tuple[str, ...]:
    names = tuple(part.strip() for part in value.split(","))
    if not all(names):
        raise FlussError(f"option {name} must be column names separated by commas, got {value!r}")
    if len(set(names)) != len(names):
        raise FlussError(f"option {name} must not have duplicates, got {value!r}")
    return names


def _whole_number(minimum: int) -> Callable[[str, str], int]:
    def parse(name: str, value: str) -> int:
        text = value.strip()
        if not text.isdecimal() or int(text) < minimum:
            raise FlussError(f"option {name} must be a whole number of at least {minimum}, got {value!r}")
        return int(text)

    return parse


def _cursor(name: str, value: str) -> str:
    try:
        check_cursor_name(value.strip())
    except FlussError as error:
        raise FlussError(f"option {name}: {error.message}") from None
    return value.strip()


def _switch(name: str, value: str) -> bool:
    text = value.strip().lower()
    if text not in ("true", "false"):
        raise FlussError(f"option {name} must be true or false, got {value!r}")
    return text == "true"


def _one_of(*choices: str) -> Callable[[str, str], str]:
    def parse(name: str, value: str) -> str:
        text = value.strip().lower()
        if text not in choices:
            raise FlussError(f"option {name} must be one of {', '.join(choices)}, got {value!r}")
        return text

    return parse
