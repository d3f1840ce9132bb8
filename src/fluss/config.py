"""Client configuration: one declaration per option, read by key or by property.

`Config({"bootstrap.servers": "host:9123"})` and `config.bootstrap_servers = "host:9123"` mean the same. Keys are
compared with `.`, `-` and `_` taken as equal, so every documented spelling works, and so do those of Apache
Fluss (`client.writer.batch-timeout`). Sizes and times are numbers, or strings with a unit (`2mb`, `30s`). A value is
checked when it is set; rules between options are checked by `validate()`, which every new connection calls.

A `Config` is a plain value without threads or files. A connection works on a copy: later changes do not reach it.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Mapping
from typing import Any, Generic, Literal, NoReturn, TypeVar, overload

from fluss.errors import FlussError
from fluss.model.option_values import parse_duration_ms, parse_memory_size

INT32_MAX = 2**31 - 1
MAX_INFLIGHT_WITH_IDEMPOTENCE = 5
FOREVER_MS = 2**64 - 1
HIDDEN = "******"

T = TypeVar("T")


def _fail(text: str) -> NoReturn:
    raise FlussError(text)


class _Option(Generic[T]):
    """A property of `Config` with its key, default, value parser and description."""

    def __init__(self, key: str, default: T, parse: Callable[[str, object], T], doc: str, *, secret: bool = False):
        self.key = key
        self.default = default
        self.parse = parse
        self.secret = secret
        self.__doc__ = f"`{key}`: {doc}"

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, config: None, owner: type) -> _Option[T]: ...
    @overload
    def __get__(self, config: Config, owner: type) -> T: ...
    def __get__(self, config: Config | None, owner: type) -> T | _Option[T]:
        if config is None:
            return self
        value: T = config._values.get(self.name, self.default)
        return value

    def __set__(self, config: Config, value: T | str | None) -> None:
        if value is None:
            config._values.pop(self.name, None)
        else:
            config._values[self.name] = self.parse(self.key, value)


def _text(key: str, value: object) -> str:
    return value if isinstance(value, str) else _fail(f"{key} must be a string, got {value!r}")


def _whole(
    minimum: int,
    maximum: int = INT32_MAX,
    with_unit: Callable[[str], int] | None = None,
    what: str = "a whole number",
) -> Callable[[str, object], int]:
    """A parser of an int or a string with an int; `with_unit` parses strings that are not just digits."""

    def parse(key: str, value: object) -> int:
        number = value
        if isinstance(value, str):
            try:
                is_plain = value.strip().lstrip("-").isdecimal()
                number = int(value.strip()) if is_plain or with_unit is None else with_unit(value)
            except ValueError:
                _fail(f"{key} must be {what}, got {value!r}")
        if isinstance(number, bool) or not isinstance(number, int):
            _fail(f"{key} must be {what}, got {value!r}")
        if not minimum <= number <= maximum:
            _fail(f"{key} must be between {minimum} and {maximum}, got {number}")
        return number

    return parse


def _bytes(minimum: int, maximum: int = INT32_MAX) -> Callable[[str, object], int]:
    return _whole(minimum, maximum, parse_memory_size, "a number of bytes, or a string such as '2mb'")


def _milliseconds(minimum: int, maximum: int = INT32_MAX) -> Callable[[str, object], int]:
    return _whole(minimum, maximum, parse_duration_ms, "a number of milliseconds, or a string such as '30s'")


def _switch(key: str, value: object) -> bool:
    if isinstance(value, bool):
        return value
    text = value.strip().lower() if isinstance(value, str) else ""
    if text not in ("true", "false"):
        _fail(f"{key} must be true or false, got {value!r}")
    return text == "true"


def _one_of(*choices: str) -> Callable[[str, object], str]:
    def parse(key: str, value: object) -> str:
        for choice in choices:
            if isinstance(value, str) and value.strip().lower() == choice.lower():
                return choice
        _fail(f"{key} must be one of {', '.join(choices)}, got {value!r}")

    return parse


def _hash_tail(key: str, value: object) -> Literal["java", "pyfluss"]:
    return "java" if _one_of("java", "pyfluss")(key, value) == "java" else "pyfluss"


def _acks(key: str, value: object) -> str:
    text = str(value).strip().lower()
    if text in ("all", "-1"):
        return "all"
    return text if text in ("0", "1") else _fail(f"{key} must be all, 1 or 0, got {value!r}")


def _servers(key: str, value: object) -> str:
    if isinstance(value, (list, tuple)):
        value = ",".join(map(str, value))
    text = _text(key, value)
    parse_addresses(text)
    return text


def _properties(key: str, value: object) -> str:
    """Return a dict of strings as JSON; it may be given as JSON already."""
    found = value
    if isinstance(value, str):
        try:
            found = json.loads(value)
        except ValueError:
            found = None
    if not isinstance(found, Mapping) or not all(isinstance(text, str) for pair in found.items() for text in pair):
        # The value is not shown: it may contain a password.
        _fail(f"{key} must be a dict of str to str, or one as JSON, got {type(value).__name__}")
    return json.dumps(dict(found), sort_keys=True)


def parse_addresses(servers: str) -> list[tuple[str, int]]:
    """The (host, port) pairs of a comma-separated list; `[::1]:9123` for IPv6."""
    addresses = []
    for item in servers.split(","):
        host, colon, port = item.strip().rpartition(":")
        if not item.strip():
            continue
        if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65536:
            _fail(f"bootstrap.servers must be host:port, or a comma-separated list of them, got {item.strip()!r}")
        addresses.append((host.strip("[]"), int(port)))
    return addresses or _fail("bootstrap.servers must not be empty; give the address of a server as host:port")


class Config:
    """The options of a connection. Setting an unknown option or an invalid value raises `FlussError`.

    >>> Config({"bootstrap.servers": "host:9123"}).bootstrap_servers
    'host:9123'
    """

    bootstrap_servers = _Option("bootstrap.servers", "127.0.0.1:9123", _servers, "address of the coordinator")

    writer_request_max_size = _Option("writer.request-max-size", 10485760, _bytes(1), "largest write request in bytes")
    writer_acks = _Option("writer.acks", "all", _acks, "`all` waits until the write is durable; or `1` or `0`")
    writer_retries = _Option("writer.retries", INT32_MAX, _whole(0), "retries of a failed write")
    writer_batch_size = _Option("writer.batch-size", 2097152, _bytes(1), "largest batch in bytes")
    writer_batch_timeout_ms = _Option(
        "writer.batch-timeout-ms", 100, _milliseconds(0), "longest wait of a batch while earlier ones are in flight"
    )
    writer_bucket_no_key_assigner = _Option(
        "writer.bucket.no-key-assigner", "sticky", _one_of("sticky", "round_robin"), "bucket of rows without a key"
    )
    writer_dynamic_batch_size_enabled = _Option(
        "writer.dynamic-batch-size.enabled",
        True,
        _switch,
        "accepted without effect: batches grow with the load anyway",
    )
    writer_dynamic_batch_size_min = _Option("writer.dynamic-batch-size-min", 262144, _bytes(1), "without effect, too")
    writer_dynamic_create_partition_enabled = _Option(
        "writer.dynamic-create-partition.enabled", False, _switch, "create a missing partition with its first row"
    )
    writer_enable_idempotence = _Option(
        "writer.enable-idempotence", True, _switch, "a retried batch is written only once"
    )
    writer_max_inflight_requests_per_bucket = _Option(
        "writer.max-inflight-requests-per-bucket", 5, _whole(1), "unacknowledged batches per bucket"
    )
    writer_buffer_memory_size = _Option(
        "writer.buffer.memory-size", 67108864, _bytes(1, 2**63), "bytes that wait for their acknowledgement"
    )
    writer_buffer_wait_timeout_ms = _Option(
        "writer.buffer.wait-timeout-ms", FOREVER_MS, _milliseconds(0, FOREVER_MS), "longest wait for room in the buffer"
    )
    writer_kv_backpressure_max_throttle_ms = _Option(
        "writer.kv-backpressure.max-throttle-ms",
        3000,
        _milliseconds(0),
        "longest pause of a bucket under storage pressure",
    )

    scanner_log_max_poll_records = _Option("scanner.log.max-poll-records", 500, _whole(1), "most records of a poll")
    scanner_log_fetch_max_bytes = _Option("scanner.log.fetch.max-bytes", 16777216, _bytes(1), "most bytes of a fetch")
    scanner_log_fetch_max_bytes_for_bucket = _Option(
        "scanner.log.fetch.max-bytes-for-bucket", 1048576, _bytes(1), "most bytes of a fetch for one bucket"
    )
    scanner_log_fetch_min_bytes = _Option("scanner.log.fetch.min-bytes", 1, _bytes(1), "bytes that a fetch waits for")
    scanner_log_fetch_wait_max_time_ms = _Option(
        "scanner.log.fetch.wait-max-time-ms", 500, _milliseconds(0), "longest wait of the server for min-bytes"
    )
    scanner_remote_log_prefetch_num = _Option(
        "scanner.remote-log.prefetch-num", 4, _whole(1), "remote segments that are read ahead"
    )
    scanner_remote_log_read_concurrency = _Option(
        "scanner.remote-log.read-concurrency", 4, _whole(1), "concurrent reads of one remote segment"
    )
    remote_file_download_thread_num = _Option(
        "remote-file.download-thread-num", 3, _whole(1), "threads that download remote segments"
    )

    bucket_hash = _Option[Literal["java", "pyfluss"]](
        "bucket.hash", "java", _hash_tail, "hash of keys: `pyfluss` if that client writes to the same tables"
    )

    lake_properties = _Option(
        "lake.properties", "{}", _properties, "properties of lake catalogs that servers do not provide", secret=True
    )

    connect_timeout_ms = _Option("connect-timeout", 120000, _milliseconds(1), "longest wait for a TCP connection")
    request_timeout_ms = _Option("request-timeout", 60000, _milliseconds(1), "longest wait for an answer")
    security_protocol = _Option("security.protocol", "PLAINTEXT", _one_of("PLAINTEXT", "sasl"), "how to log in")
    security_sasl_mechanism = _Option("security.sasl.mechanism", "PLAIN", _one_of("PLAIN"), "SASL mechanism")
    security_sasl_username = _Option("security.sasl.username", "", _text, "user")
    security_sasl_password = _Option("security.sasl.password", "", _text, "password", secret=True)

    def __init__(self, properties: Mapping[str, Any] | None = None) -> None:
        self._values: dict[str, Any] = {}
        if properties is not None and not isinstance(properties, Mapping):
            hint = f', e.g. Config({{"bootstrap.servers": {properties!r}}})' if isinstance(properties, str) else ""
            _fail(f"Config takes a dict of options{hint}, got {type(properties).__name__}")
        for key, value in (properties or {}).items():
            setattr(self, _option_of(key).name, value)

    def __setattr__(self, name: str, value: object) -> None:
        if not name.startswith("_") and not hasattr(type(self), name):
            near = difflib.get_close_matches(name, [option.name for option in _OPTIONS.values()], n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            _fail(f"a Config has no property {name!r}{hint}")
        super().__setattr__(name, value)

    def validate(self) -> None:
        """Raise `FlussError` for options that contradict each other."""
        if self.security_protocol == "sasl":
            for name in ("username", "password"):
                if not getattr(self, f"security_sasl_{name}"):
                    _fail(f"security.sasl.{name} must be set when security.protocol is sasl")
        for smaller, larger in _ORDERED_PAIRS:
            if getattr(self, smaller.name) > getattr(self, larger.name):
                _fail(
                    f"{smaller.key} ({getattr(self, smaller.name)}) must not be larger than "
                    f"{larger.key} ({getattr(self, larger.name)})"
                )
        if self.writer_enable_idempotence:
            self._validate_idempotence()

    def _validate_idempotence(self) -> None:
        advice = "change it, or set writer.enable-idempotence to false"
        if self.writer_acks != "all":
            _fail(f"writer.acks is {self.writer_acks}, but idempotent writes need all: {advice}")
        if self.writer_retries < 1:
            _fail(f"writer.retries is 0, but idempotent writes need at least 1: {advice}")
        if self.writer_max_inflight_requests_per_bucket > MAX_INFLIGHT_WITH_IDEMPOTENCE:
            _fail(
                f"writer.max-inflight-requests-per-bucket is {self.writer_max_inflight_requests_per_bucket}, but "
                f"idempotent writes allow at most {MAX_INFLIGHT_WITH_IDEMPOTENCE}: {advice}"
            )

    def copy(self) -> Config:
        """An independent config with the same values."""
        twin = Config()
        twin._values.update(self._values)
        return twin

    def explicit(self) -> dict[str, object]:
        """The options that were set, by property name."""
        return dict(self._values)

    def to_dict(self) -> dict[str, str]:
        """All options as strings, by key; the password is included."""
        return {option.key: _as_text(getattr(self, option.name)) for option in _OPTIONS.values()}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Config) and self.to_dict() == other.to_dict()

    __hash__ = None  # type: ignore[assignment]  # it can change

    def __repr__(self) -> str:
        shown = {"bootstrap.servers": self.bootstrap_servers}
        for option in _OPTIONS.values():
            if option.name in self._values:
                shown[option.key] = HIDDEN if option.secret else _as_text(self._values[option.name])
        return f"Config({shown})"


def _as_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _normal_form(key: str) -> str:
    return key.strip().lower().replace("-", ".").replace("_", ".")


_OPTIONS: dict[str, _Option[object]] = {
    _normal_form(option.key): option for option in vars(Config).values() if isinstance(option, _Option)
}
_ALIASES: dict[str, _Option[object]] = {
    **{_normal_form(option.name): option for option in _OPTIONS.values()},
    # Keys without ".ms", as in Apache Fluss, where a time has a unit.
    **{key.removesuffix(".ms"): option for key, option in _OPTIONS.items()},
    "request.max.size": _OPTIONS["writer.request.max.size"],
}
_ORDERED_PAIRS: tuple[tuple[_Option[int], _Option[int]], ...] = (
    (Config.writer_batch_size, Config.writer_request_max_size),
    (Config.writer_batch_size, Config.writer_buffer_memory_size),
    (Config.scanner_log_fetch_max_bytes_for_bucket, Config.scanner_log_fetch_max_bytes),
    (Config.scanner_log_fetch_min_bytes, Config.scanner_log_fetch_max_bytes),
)


def option_key(key: str) -> str:
    """The key of an option in the spelling of this client; `key` may have any accepted spelling.

    >>> option_key("client.writer.batch-timeout")
    'writer.batch-timeout-ms'
    """
    return _option_of(key).key


def _option_of(key: object) -> _Option[object]:
    if not isinstance(key, str):
        _fail(f"a configuration key must be a string, got {key!r}")
    normal = _normal_form(key)
    short = normal.removeprefix("client.")  # how the Java client spells its keys
    option = _OPTIONS.get(normal) or _ALIASES.get(normal) or _OPTIONS.get(short) or _ALIASES.get(short)
    if option is None:
        near = difflib.get_close_matches(normal, _OPTIONS, n=1)
        hint = f"; did you mean {_OPTIONS[near[0]].key!r}?" if near else ""
        _fail(f"unknown configuration key {key!r}{hint}")
    return option
