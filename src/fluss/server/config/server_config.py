"""The configuration of one server: the values of a ``server.yaml`` and of flags, parsed into typed fields.

`ServerConfig` is immutable and created once, before anything starts. Loading never touches the data directory.
Passwords appear only in `ServerConfig.values`, which its repr leaves out; `public_values` may be shown to clients.
Errors are FlussError with code 39; they name the option and never contain the value of a secret one.
"""

from __future__ import annotations

import difflib
import logging
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from fluss.errors import ErrorCode, FlussError
from fluss.model.option_values import parse_boolean, parse_duration_ms, parse_int, parse_memory_size
from fluss.server.catalog.database_file import CATALOG_FILE_NAME
from fluss.server.config.config_file import read_config_file
from fluss.server.config.option import Kind, Option
from fluss.server.config.options import FAMILIES, OPTIONS, family_of, is_secret
from fluss.server.runtime.listeners import (
    DEFAULT_COORDINATOR_PORT,
    DEFAULT_LISTENER_NAME,
    Listener,
    build_listeners,
    check_access_control,
    parse_address,
    parse_listeners,
    parse_protocol_map,
)
from fluss.server.security.credentials import read_credentials, read_mechanisms
from fluss.server.security.sasl import Credentials

logger = logging.getLogger(__name__)

# The schemes that pyarrow's file systems know.
REMOTE_SCHEMES = frozenset({"file", "s3", "s3a", "gs", "gcs", "hdfs", "viewfs", "abfs", "abfss"})
TABLET_COUNT_LIMIT = 256
# Apache Fluss accepts the options of its S3 library with three prefixes and two spellings; here all map to one name.
_S3_PREFIXES = ("fs.s3a.", "s3a.", "s3.")
_S3_SPELLINGS = {
    "access.key": "access-key",
    "secret.key": "secret-key",
    "endpoint.region": "region",
    "path.style.access": "path-style-access",
}
REDACTED = "******"


def _invalid(message: str) -> FlussError:
    return FlussError(message, ErrorCode.INVALID_CONFIG_EXCEPTION)


@dataclass(frozen=True)
class ServerConfig:
    """One field per option with an effect (see the table in `options`), plus fields made from several options."""

    data_dir: Path
    remote_data_dir: str
    listeners: tuple[Listener, ...]
    internal_listener: str
    tablet_count: int
    hang_timeout_ms: int
    tablet_first_port: int
    rack: str | None
    log_flush: Literal["always", "interval", "os"]
    log_flush_interval_ms: int
    log_validate: Literal["headers", "full"]
    log_segment_file_size: int
    log_index_interval_size: int
    log_retention_check_interval_ms: int
    log_retention_roll_active_segment: bool
    remote_log_task_interval_ms: int
    remote_log_task_max_upload_segments: int
    writer_id_expiration_ms: int
    writer_id_check_interval_ms: int
    default_bucket_number: int
    default_replication_factor: int
    max_partition_num: int
    max_bucket_num: int
    allow_create_log_tables: bool
    allow_create_kv_tables: bool
    kv_snapshot_interval_ms: int
    kv_snapshot_num_retained: int
    kv_snapshot_lease_check_interval_ms: int
    kv_block_cache_size: int
    kv_write_buffers_size: int
    kv_recent_rows_size: int
    kv_scanner_ttl_ms: int
    kv_scanner_expiration_interval_ms: int
    kv_scanner_max_per_bucket: int
    kv_scanner_max_per_server: int
    kv_scanner_max_batch_size: int
    staged_append_expiration_ms: int
    staged_append_check_interval_ms: int
    staged_append_max_bucket_bytes: int
    staged_append_max_bytes: int
    auto_partition_check_interval_ms: int
    datalake_format: str | None
    datalake_enabled: bool | None
    lake_request_timeout_ms: int
    lake_tiering_timeout_ms: int
    lake_tiering_check_interval_ms: int
    lake_expired_partition_max_wait_ms: int
    producer_offsets_ttl_ms: int
    producer_offsets_cleanup_interval_ms: int
    max_request_size: int
    connection_max_idle_ms: int
    max_connections: int
    authorizer_enabled: bool
    acl_ignore_case: bool
    super_users: frozenset[tuple[str, str]]
    """(type, name) of the principals that no ACL restricts."""
    sasl_mechanisms: tuple[str, ...]
    """The enabled SASL mechanisms, in upper case."""
    credentials: Mapping[str, Credentials] = field(repr=False)
    """The users that can log in, by name of the SASL listener."""
    values: Mapping[str, str] = field(repr=False)
    """The options as configured, secrets included."""

    @staticmethod
    def load(path: Path | str | None = None, overrides: Mapping[str, str] | None = None) -> ServerConfig:
        """Read a configuration file, if any; ``overrides``, by option name, take precedence."""
        values = read_config_file(Path(path)) if path is not None else {}
        given = {name: value for name, value in (overrides or {}).items() if value is not None}
        _override_addresses(values, given)
        values.update(given)
        return from_values(values)

    @staticmethod
    def for_tests(data_dir: Path | str, **overrides: object) -> ServerConfig:
        """Return a configuration on loopback with free ports; ``overrides`` replace fields by name."""
        values = {"data.dir": str(data_dir), "bind.listeners": "FLUSS://127.0.0.1:0"}
        fields = dict(from_values(values).__dict__)
        unknown = overrides.keys() - fields.keys()
        if unknown:
            raise TypeError(f"ServerConfig has no field {', '.join(sorted(unknown))}")
        return ServerConfig(**{**fields, **overrides})

    def listener(self, name: str) -> Listener:
        """Return the listener of that name; KeyError if there is none."""
        for listener in self.listeners:
            if listener.name == name:
                return listener
        raise KeyError(name)

    def public_values(self) -> dict[str, str]:
        """Return the options as configured, with secrets redacted."""
        return {name: REDACTED if is_secret(name) else value for name, value in self.values.items()}

    def values_with_prefix(self, prefix: str) -> dict[str, str]:
        """Return the options of a family, such as ``s3.``, by their full names."""
        return {name: value for name, value in self.values.items() if name.startswith(prefix)}


def _override_addresses(values: dict[str, str], given: dict[str, str]) -> None:
    """Apply ``--bind HOST:PORT`` to the only listener of the file; an error if the file has several."""
    address = given.get("bind.listeners")
    if address is None:
        return
    if "://" not in address:
        host, port = parse_address(address, "--bind")
        names = list(parse_listeners(values["bind.listeners"], "bind.listeners")) if "bind.listeners" in values else []
        if len(names) > 1:
            raise _invalid(
                f"--bind {address} is ambiguous: the configuration has the listeners {', '.join(names)}; "
                "name them, as in --bind 'FLUSS://127.0.0.1:9123, CLIENT://127.0.0.1:9223'"
            )
        name = names[0] if names else DEFAULT_LISTENER_NAME
        given["bind.listeners"] = f"{name}://{'[' + host + ']' if ':' in host else host}:{port}"
    for legacy in ("coordinator.host", "coordinator.port", "tablet-server.host"):
        values.pop(legacy, None)


def from_values(values: Mapping[str, str]) -> ServerConfig:
    """Check all options, warn once about those without effect, and return the configuration."""
    values = _with_one_s3_spelling(values)
    _check_names(values)
    fields: dict[str, Any] = {}
    for option in OPTIONS.values():
        if option.attribute is not None:
            fields[option.attribute] = parse_value(option, values.get(option.name, option.default))
    _limit_replicas_and_tablets(fields)
    data_dir = _data_dir(values)
    listeners, internal = _listeners(values)
    check_access_control(bool(fields["authorizer_enabled"]), listeners, internal)
    mechanisms = read_mechanisms(values, listeners)
    enabled = values.get("datalake.enabled")
    parse_value(OPTIONS["authorizer.type"], values.get("authorizer.type", "default"))
    return ServerConfig(
        **fields,
        data_dir=data_dir,
        remote_data_dir=_remote_data_dir(values, data_dir),
        listeners=listeners,
        internal_listener=internal,
        datalake_enabled=None if enabled is None else bool(parse_value(OPTIONS["datalake.enabled"], enabled)),
        super_users=_super_users(values.get("super.users", "")),
        sasl_mechanisms=mechanisms,
        credentials=read_credentials(values, listeners),
        values=MappingProxyType(dict(values)),
    )


def _with_one_s3_spelling(values: Mapping[str, str]) -> dict[str, str]:
    """Rename every spelling of an S3 option to ``s3.name``; the shortest prefix takes precedence."""
    renamed = {name: value for name, value in values.items() if not name.startswith(_S3_PREFIXES)}
    for prefix in _S3_PREFIXES:
        for name, value in values.items():
            if name.startswith(prefix):
                rest = name[len(prefix) :]
                renamed[f"s3.{_S3_SPELLINGS.get(rest, rest)}"] = value
    return renamed


def _check_names(values: Mapping[str, str]) -> None:
    without_effect = []
    for name in values:
        option = OPTIONS.get(name)
        honoured = option.honoured if option else None
        if option is None:
            family = family_of(name)
            if family is None:
                raise _invalid(_unknown_option(name))
            honoured = family.honoured
        if not honoured:
            without_effect.append(name)
    if without_effect:
        logger.warning("options without effect on one machine: %s", ", ".join(sorted(without_effect)))


def _unknown_option(name: str) -> str:
    near = difflib.get_close_matches(name, [*OPTIONS, *(family.prefix for family in FAMILIES)], n=1, cutoff=0.5)
    hint = f"; the nearest is {near[0]!r}" if near else ""
    return f"unknown option {name!r}{hint}; docs/configuration.md lists all options"


def parse_value(option: Option, text: str | None) -> Any:
    """Return the typed value of an option; FlussError names the option and the allowed values."""
    if text is None:
        return None
    try:
        value = _PARSERS[option.kind](text)
        if option.kind is Kind.CHOICE:
            value = value.lower()
            if value not in option.choices:
                raise ValueError(f"must be one of {', '.join(option.choices)}, got {text!r}")
        if option.minimum is not None and value < option.minimum:
            raise ValueError(f"must be at least {option.minimum}, got {text!r}")
    except ValueError as error:
        raise _invalid(f"option {option.name}: {error}") from error
    return value


_PARSERS: dict[Kind, Any] = {
    Kind.STRING: str,
    Kind.CHOICE: str,
    Kind.INTEGER: parse_int,
    Kind.BOOLEAN: parse_boolean,
    Kind.DURATION: parse_duration_ms,
    Kind.SIZE: parse_memory_size,
}


def _limit_replicas_and_tablets(fields: dict[str, Any]) -> None:
    if fields["default_replication_factor"] > 1:
        logger.warning("option default.replication.factor: using 1, because one machine keeps one replica")
        fields["default_replication_factor"] = 1
    if fields["tablet_count"] > TABLET_COUNT_LIMIT:
        raise _invalid(f"option server.tablets: must be at most {TABLET_COUNT_LIMIT}, got {fields['tablet_count']}")


def _first_of(values: Mapping[str, str], single: str, several: str) -> str | None:
    if single in values:
        return values[single]
    choices = [item.strip() for item in values.get(several, "").split(",") if item.strip()]
    if len(choices) > 1:
        logger.warning("option %s: using the first of %d directories", several, len(choices))
    return choices[0] if choices else None


def _data_dir(values: Mapping[str, str]) -> Path:
    text = _first_of(values, "data.dir", "data.dirs")
    if text is None:
        return _default_data_dir()
    return Path(text).expanduser().absolute()


def _default_data_dir() -> Path:
    """Return `fluss-data` in the current directory; point out tables where earlier versions would have put them."""
    chosen, earlier = Path("fluss-data").absolute(), Path(tempfile.gettempdir()) / "fluss-data"
    logger.warning("no data directory given, using %s; --data DIR chooses another one", chosen)
    if not chosen.exists() and (earlier / CATALOG_FILE_NAME).exists():
        logger.warning(
            "%s, the default of earlier versions, has tables; to use them, start with --data %s or move it here",
            earlier,
            earlier,
        )
    return chosen


def _remote_data_dir(values: Mapping[str, str], data_dir: Path) -> str:
    text = _first_of(values, "remote.data.dir", "remote.data.dirs") or str(data_dir / "remote")
    scheme, separator, _ = text.partition(":/")
    if separator and scheme not in REMOTE_SCHEMES:
        raise _invalid(
            f"option remote.data.dir: unknown scheme {scheme!r} in {text!r}; use a directory, or an address that "
            "starts with s3://"
        )
    return text


def _listeners(values: Mapping[str, str]) -> tuple[tuple[Listener, ...], str]:
    internal = values.get("internal.listener.name", DEFAULT_LISTENER_NAME).upper()
    if "bind.listeners" in values:
        if "coordinator.host" in values:
            raise _invalid("coordinator.host and bind.listeners exclude each other; keep bind.listeners")
        bind = parse_listeners(values["bind.listeners"], "bind.listeners")
    else:
        if "internal.listener.name" in values:
            raise _invalid("internal.listener.name requires bind.listeners; set bind.listeners, or remove it")
        host = values.get("coordinator.host") or values.get("tablet-server.host") or "127.0.0.1"
        port = parse_value(OPTIONS["coordinator.port"], values.get("coordinator.port", str(DEFAULT_COORDINATOR_PORT)))
        bind = {
            DEFAULT_LISTENER_NAME: parse_address(
                f"{'[' + host + ']' if ':' in host else host}:{port}", "coordinator.port"
            )
        }
    if internal not in bind:
        raise _invalid(
            f"internal.listener.name must be one of bind.listeners ({', '.join(bind)}), got {internal!r}; "
            "change it, or add it to bind.listeners"
        )
    advertised = {}
    if "advertised.listeners" in values:
        advertised = parse_listeners(values["advertised.listeners"], "advertised.listeners")
    protocols = parse_protocol_map(values.get("security.protocol.map", ""), list(bind))
    return build_listeners(bind, advertised, protocols), internal


def _super_users(text: str) -> frozenset[tuple[str, str]]:
    users = set()
    for item in filter(None, (part.strip() for part in text.split(";"))):
        kind, colon, name = item.partition(":")
        if not colon or not kind or not name:
            raise _invalid(f"super.users must be a list of TYPE:name, such as 'User:admin', got {item!r}")
        users.add((kind, name))
    return frozenset(users)
