"""Parsing configurations: names, values, files, and errors."""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path

import pytest

from fluss.errors import ErrorCode, FlussError
from fluss.server.config.options import FAMILIES, OPTIONS, is_secret
from fluss.server.config.server_config import ServerConfig

APACHE_TABLET_YAML = """\
zookeeper.address: 127.0.0.1:12181
remote.data.dir: /tmp/remote
bind.listeners: FLUSS://127.0.0.1:19124, CLIENT://127.0.0.1:19174     # one pair per process
internal.listener.name: FLUSS
security.protocol.map: CLIENT:sasl
security.sasl.enabled.mechanisms: plain
security.sasl.plain.jaas.config: org.apache.fluss.security.auth.sasl.plain.PlainLoginModule required \
user_admin="admin-secret" user_alice="alice-secret";
super.users: User:admin
default.replication.factor: 1
# tablet only:
tablet-server.id: 0
data.dir: /tmp/data
kv.snapshot.interval: 30s
"""


def load(tmp_path: Path, text: str, **overrides: str) -> ServerConfig:
    path = tmp_path / "server.yaml"
    path.write_text(text)
    return ServerConfig.load(path, {name.replace("__", "."): value for name, value in overrides.items()})


def error_of(tmp_path: Path, text: str, **overrides: str) -> str:
    with pytest.raises(FlussError) as caught:
        load(tmp_path, text, **overrides)
    assert caught.value.error_code == ErrorCode.INVALID_CONFIG_EXCEPTION
    return caught.value.message


def test_a_server_yaml_of_an_apache_fluss_tablet_is_understood(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        config = load(tmp_path, APACHE_TABLET_YAML)
    assert [str(listener) for listener in config.listeners] == ["FLUSS://127.0.0.1:19124", "CLIENT://127.0.0.1:19174"]
    assert [listener.protocol for listener in config.listeners] == ["PLAINTEXT", "SASL"]
    assert config.internal_listener == "FLUSS"
    assert list(config.credentials) == ["CLIENT"]
    assert config.credentials["CLIENT"].user_names == ("admin", "alice")
    assert config.super_users == {("User", "admin")}
    assert config.data_dir == Path("/tmp/data")
    assert config.remote_data_dir == "/tmp/remote"
    # All options without effect share one line.
    assert [record.getMessage() for record in caplog.records] == [
        "options without effect on one machine: tablet-server.id, zookeeper.address"
    ]
    assert config.kv_snapshot_interval_ms == 30_000


def test_a_server_yaml_of_an_apache_fluss_coordinator_has_no_data_directory_and_starts_too(tmp_path: Path) -> None:
    text = "zookeeper.address: localhost:2181\nremote.data.dir: /tmp/remote\nbind.listeners: FLUSS://localhost:9123\n"
    config = load(tmp_path, text)
    assert config.data_dir.name == "fluss-data"
    assert load(tmp_path, text, data__dir="/tmp/elsewhere").data_dir == Path("/tmp/elsewhere")


def test_the_default_directory_is_the_current_one_and_an_earlier_default_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    here, temporary = tmp_path / "here", tmp_path / "temporary"
    for folder in (here, temporary / "fluss-data"):
        folder.mkdir(parents=True)
    monkeypatch.chdir(here)
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    assert ServerConfig.load(None, {}).data_dir == here / "fluss-data"
    assert [record.message for record in caplog.records] == [
        f"no data directory given, using {here / 'fluss-data'}; --data DIR chooses another one"
    ]
    (temporary / "fluss-data" / "catalog.sqlite").touch()
    ServerConfig.load(None, {})
    assert f"start with --data {temporary / 'fluss-data'} or move it here" in caplog.records[-1].message
    (here / "fluss-data").mkdir()
    caplog.clear()
    ServerConfig.load(None, {})
    assert len(caplog.records) == 1, "in use by now"


def test_defaults_of_a_server_without_any_option() -> None:
    config = ServerConfig.load(None, {"data.dir": "/tmp/x"})
    assert [str(listener) for listener in config.listeners] == ["FLUSS://127.0.0.1:9123"]
    assert config.remote_data_dir == "/tmp/x/remote"
    assert (config.tablet_count, config.log_flush, config.log_segment_file_size) == (1, "always", 1 << 30)
    assert config.max_request_size == 100 << 20
    assert config.sasl_mechanisms == ()
    assert config.credentials == {}


def test_every_kind_of_value_is_read(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        "log.segment.file-size: 120b\nremote.log.task-interval-duration: 1 s\nallow.create.kv.tables: FALSE\n"
        "log.flush: Interval\nmax.bucket.num: 7\ndata.dir: /tmp/x\n",
    )
    assert config.log_segment_file_size == 120
    assert config.remote_log_task_interval_ms == 1000
    assert config.allow_create_kv_tables is False
    assert config.log_flush == "interval"
    assert config.max_bucket_num == 7


def test_nested_maps_and_lists_are_the_same_as_dotted_names_and_commas(tmp_path: Path) -> None:
    config = load(tmp_path, "log:\n  segment:\n    file-size: 1mb\nbind.listeners:\n  - FLUSS://a:1\n  - X://b:2\n")
    assert config.log_segment_file_size == 1 << 20
    assert [listener.name for listener in config.listeners] == ["FLUSS", "X"]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("log.segment.filesize: 1mb", "unknown option 'log.segment.filesize'; the nearest is 'log.segment.file-size'"),
        (
            "log.segment.file-size: 1 parsec",
            "option log.segment.file-size: memory size '1 parsec' has the unknown unit",
        ),
        (
            "remote.log.task-interval-duration: 10",
            "option remote.log.task-interval-duration: duration '10' has no unit",
        ),
        ("log.flush: never", "option log.flush: must be one of always, interval, os, got 'never'"),
        ("server.tablets: 0", "option server.tablets: must be at least 1, got '0'"),
        ("server.tablets: 1000", "option server.tablets: must be at most 256, got 1000"),
        ("default.bucket.number: many", "option default.bucket.number: 'many' is not a whole number"),
        ("authorizer.enabled: maybe", "option authorizer.enabled: 'maybe' is not a boolean"),
        ("authorizer.type: mine", "option authorizer.type: must be one of default, got 'mine'"),
        ("bind.listeners: 127.0.0.1:9123", "bind.listeners must be NAME://host:port"),
        ("bind.listeners: FLUSS://a:1, FLUSS://b:2", "bind.listeners has listener FLUSS twice"),
        ("bind.listeners: FLUSS://a:1, X://b:1", "bind.listeners uses port 1 for more than one listener"),
        ("bind.listeners: FLUSS://a:70000", "bind.listeners: port must be at most 65535, got 70000"),
        ("bind.listeners: CLIENT://a:1", "internal.listener.name must be one of bind.listeners (CLIENT), got 'FLUSS'"),
        ("advertised.listeners: CLIENT://a:1", "advertised.listeners may name only bind.listeners (FLUSS), got CLIENT"),
        ("internal.listener.name: X", "internal.listener.name requires bind.listeners"),
        ("security.protocol.map: FLUSS", "security.protocol.map must be LISTENER:protocol"),
        ("security.protocol.map: FLUSS:tls", "security.protocol.map: unknown protocol 'tls' of listener FLUSS"),
        (
            "security.protocol.map: FLUSS:sasl",
            "security.sasl.enabled.mechanisms is not set, but listener FLUSS is sasl",
        ),
        (
            "authorizer.enabled: true",
            "authorizer.enabled is true, but FLUSS is the only listener, and it is the internal one",
        ),
        (
            "authorizer.enabled: true\nbind.listeners: A://h:1\ninternal.listener.name: A\n"
            "security.protocol.map: A:sasl",
            "Add a listener for clients, for example bind.listeners: 'A://127.0.0.1:9123, CLIENT://0.0.0.0:9223'",
        ),
        ("data.dir: a\nlog.flush: os\ndata.dir: b", "sets option 'data.dir' twice, in lines 1 and 3; keep one"),
        ("log:\n  flush: os\nlog.flush: always", "sets option 'log.flush' twice, in lines 2 and 3"),
        ("remote.data.dir: s4://bucket/x", "remote.data.dir: unknown scheme 's4' in 's4://bucket/x'"),
        ("super.users: admin", "super.users must be a list of TYPE:name, such as 'User:admin', got 'admin'"),
        ("coordinator.port: abc", "coordinator.port must be HOST:PORT, such as '127.0.0.1:9123'"),
        ("- a\n- b", "must consist of lines like 'option: value'"),
        ("a: [", "is not valid YAML in line 2"),
    ],
)
def test_errors_name_the_option_and_what_it_takes(tmp_path: Path, line: str, expected: str) -> None:
    assert expected in error_of(tmp_path, line + "\n")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FlussError, match=r"cannot read configuration file .*nowhere\.yaml: No such file"):
        ServerConfig.load(tmp_path / "nowhere.yaml", {})


def test_an_empty_file_and_empty_values_mean_defaults(tmp_path: Path) -> None:
    assert load(tmp_path, "").tablet_count == 1
    assert load(tmp_path, "# nothing\nlog.segment.file-size:\n").log_segment_file_size == 1 << 30


class TestBindFlag:
    def test_moves_the_only_listener_of_the_file_and_keeps_its_name(self, tmp_path: Path) -> None:
        config = load(
            tmp_path, "bind.listeners: A://x:1\ninternal.listener.name: A\n", bind__listeners="127.0.0.1:5000"
        )
        assert [str(listener) for listener in config.listeners] == ["A://127.0.0.1:5000"]

    def test_is_ambiguous_with_several_listeners(self, tmp_path: Path) -> None:
        text = "bind.listeners: FLUSS://x:1, CLIENT://x:2\n"
        message = error_of(tmp_path, text, bind__listeners="127.0.0.1:5000")
        assert "the configuration has the listeners FLUSS, CLIENT; name them" in message

    def test_names_replace_all_listeners(self, tmp_path: Path) -> None:
        text = "bind.listeners: FLUSS://x:1, CLIENT://x:2\n"
        config = load(tmp_path, text, bind__listeners="FLUSS://[::1]:0")
        assert [str(listener) for listener in config.listeners] == ["FLUSS://[::1]:0"]

    def test_takes_precedence_over_the_older_options(self, tmp_path: Path) -> None:
        text = "coordinator.host: example.org\ncoordinator.port: 4\n"
        assert [str(listener) for listener in load(tmp_path, text).listeners] == ["FLUSS://example.org:4"]
        config = load(tmp_path, text, bind__listeners="127.0.0.1:0")
        assert [str(listener) for listener in config.listeners] == ["FLUSS://127.0.0.1:0"]


def test_a_larger_replication_factor_counts_as_one_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert load(tmp_path, "default.replication.factor: 3\ndata.dir: /tmp/x\n").default_replication_factor == 1
    assert "one machine keeps one replica" in caplog.text


@pytest.mark.parametrize("prefix", [family.prefix for family in FAMILIES])
def test_families_accept_every_name_with_their_prefix(tmp_path: Path, prefix: str) -> None:
    assert load(tmp_path, f"{prefix}some.thing: 1\n").values[f"{prefix}some.thing"] == "1"


def test_every_spelling_of_an_s3_option_means_the_same(tmp_path: Path) -> None:
    spellings = "fs.s3a.access.key: a\ns3a.secret-key: b\nfs.s3a.endpoint: old\ns3.endpoint: http://127.0.0.1:9\n"
    config = load(tmp_path, APACHE_TABLET_YAML + spellings + "s3.path.style.access: true\nfs.s3a.endpoint.region: r\n")
    assert config.values_with_prefix("s3.") == {
        "s3.access-key": "a",
        "s3.secret-key": "b",
        "s3.endpoint": "http://127.0.0.1:9",
        "s3.path-style-access": "true",
        "s3.region": "r",
    }


def test_passwords_are_neither_in_the_repr_nor_in_the_public_values(tmp_path: Path) -> None:
    config = load(tmp_path, APACHE_TABLET_YAML + "s3.secret-key: hush-hush\n")
    assert "admin-secret" not in repr(config)
    assert "hush-hush" not in repr(config)
    public = config.public_values()
    assert public["security.sasl.plain.jaas.config"] == public["s3.secret-key"] == "******"
    assert public["super.users"] == "User:admin"
    assert config.values_with_prefix("s3.") == {"s3.secret-key": "hush-hush"}


def test_only_secrets_are_recognised_by_name() -> None:
    assert {name for name in OPTIONS if is_secret(name)} == {
        "security.sasl.plain.jaas.config",
        "security.sasl.plain.credentials",
    }
    assert is_secret("security.sasl.listener.name.client.plain.jaas.config")


def test_for_tests_replaces_fields(tmp_path: Path) -> None:
    config = ServerConfig.for_tests(tmp_path, log_segment_file_size=100)
    assert config.log_segment_file_size == 100
    assert config.listeners[0].port == 0
    with pytest.raises(TypeError, match="has no field log_segment"):
        ServerConfig.for_tests(tmp_path, log_segment=1)
