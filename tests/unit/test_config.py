"""Options by key and by property, their checks, and what is shown of them."""

from __future__ import annotations

import pytest

from fluss.config import Config, parse_addresses
from fluss.errors import ErrorCode, FlussError

DEFAULTS = {
    "bootstrap.servers": "127.0.0.1:9123",
    "writer.request-max-size": "10485760",
    "writer.acks": "all",
    "writer.retries": "2147483647",
    "writer.batch-size": "2097152",
    "writer.batch-timeout-ms": "100",
    "writer.bucket.no-key-assigner": "sticky",
    "bucket.hash": "java",
    "scanner.remote-log.prefetch-num": "4",
    "remote-file.download-thread-num": "3",
    "scanner.remote-log.read-concurrency": "4",
    "scanner.log.max-poll-records": "500",
    "scanner.log.fetch.max-bytes": "16777216",
    "scanner.log.fetch.min-bytes": "1",
    "scanner.log.fetch.wait-max-time-ms": "500",
    "scanner.log.fetch.max-bytes-for-bucket": "1048576",
    "connect-timeout": "120000",
    "security.protocol": "PLAINTEXT",
    "security.sasl.mechanism": "PLAIN",
    "security.sasl.username": "",
    "security.sasl.password": "",
}


def test_defaults_are_those_of_the_documents() -> None:
    options = Config().to_dict()
    assert {key: options[key] for key in DEFAULTS} == DEFAULTS


@pytest.mark.parametrize(
    ("key", "value", "name"),
    [
        ("writer.batch-size", "4096", "writer_batch_size"),
        ("writer.batch.size", "4096", "writer_batch_size"),
        ("writer_batch_size", 4096, "writer_batch_size"),
        ("request.max.size", "4096", "writer_request_max_size"),
        ("writer.request.max.size", "4096", "writer_request_max_size"),
        ("connect-timeout", "4096", "connect_timeout_ms"),
        ("connect_timeout_ms", "4096", "connect_timeout_ms"),
        ("request-timeout", "4096", "request_timeout_ms"),
        ("writer.buffer.memory-size", " 4096 ", "writer_buffer_memory_size"),
        ("client.request-timeout", "4096", "request_timeout_ms"),
        ("client.request-timeout", "4096ms", "request_timeout_ms"),
        ("client.writer.batch-timeout", "4096 ms", "writer_batch_timeout_ms"),
        ("scanner.log.fetch.wait-max-time", "4096", "scanner_log_fetch_wait_max_time_ms"),
        ("client.writer.batch-size", "4kb", "writer_batch_size"),
        ("client.scanner.log.fetch.max-bytes", "4 kb", "scanner_log_fetch_max_bytes"),
    ],
)
def test_every_spelling_of_a_key_sets_its_property(key: str, value: object, name: str) -> None:
    config = Config({key: value})
    assert getattr(config, name) == 4096


def test_properties_are_read_and_written() -> None:
    config = Config()
    config.bootstrap_servers = "a:1, b:2"
    config.writer_enable_idempotence = False
    config.writer_acks = "1"
    config.writer_retries = "5"  # texts are taken as well
    assert (config.bootstrap_servers, config.writer_acks, config.writer_retries) == ("a:1, b:2", "1", 5)
    config.writer_retries = None
    assert config.writer_retries == 2147483647
    assert Config({"writer.acks": None}).writer_acks == "all"
    assert Config({"writer.acks": "-1"}).writer_acks == "all"
    assert Config({"writer.enable-idempotence": "False"}).writer_enable_idempotence is False
    assert Config({"security.protocol": "SASL"}).security_protocol == "sasl"


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("writer.batch-sise", "1", "unknown configuration key 'writer.batch-sise'; did you mean 'writer.batch-size'?"),
        ("nonsense", "1", "unknown configuration key 'nonsense'"),
        ("writer.retries", "2mb", "writer.retries must be a whole number, got '2mb'"),
        ("writer.batch-size", "2 miles", "writer.batch-size must be a number of bytes, or a string such as '2mb', got"),
        ("writer.batch-size", "2s", "writer.batch-size must be a number of bytes, or a string such as '2mb', got '2s'"),
        ("writer.batch-size", "9999gb", "writer.batch-size must be between 1 and 2147483647, got"),
        ("writer.batch-size", True, "writer.batch-size must be a number of bytes, or a string such as '2mb', got True"),
        ("request-timeout", "a while", "request-timeout must be a number of milliseconds, or a string such as '30s'"),
        ("request-timeout", "-1", "request-timeout must be between 1 and 2147483647, got -1"),
        ("writer.batch-size", "0", "writer.batch-size must be between 1 and 2147483647, got 0"),
        ("writer.acks", "two", "writer.acks must be all, 1 or 0, got 'two'"),
        ("bucket.hash", "rust", "must be one of java, pyfluss, got 'rust'"),
        ("writer.bucket.no-key-assigner", "random", "must be one of sticky, round_robin, got 'random'"),
        ("security.protocol", "tls", "security.protocol must be one of PLAINTEXT, sasl, got 'tls'"),
        ("security.sasl.mechanism", "SCRAM", "security.sasl.mechanism must be one of PLAIN, got 'SCRAM'"),
        ("writer.enable-idempotence", "yes", "writer.enable-idempotence must be true or false, got 'yes'"),
        ("bootstrap.servers", "localhost", "bootstrap.servers must be host:port"),
        ("bootstrap.servers", "", "bootstrap.servers must not be empty"),
    ],
)
def test_impossible_values_are_refused_with_the_reason(key: str, value: object, text: str) -> None:
    with pytest.raises(FlussError) as caught:
        Config({key: value})
    assert text in caught.value.message
    assert caught.value.error_code == ErrorCode.CLIENT_ERROR


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"security.protocol": "sasl"}, "security.sasl.username must be set when security.protocol is sasl"),
        ({"security.protocol": "sasl", "security.sasl.username": "u"}, "security.sasl.password must be set"),
        ({"writer.batch-size": "20000000"}, "must not be larger than writer.request-max-size (10485760)"),
        ({"scanner.log.fetch.max-bytes": "100"}, "must not be larger than scanner.log.fetch.max-bytes (100)"),
        ({"writer.acks": "1"}, "writer.acks is 1, but idempotent writes need all"),
        ({"writer.retries": "0"}, "writer.retries is 0, but idempotent writes need at least 1"),
        ({"writer.max-inflight-requests-per-bucket": "6"}, "idempotent writes allow at most 5"),
    ],
)
def test_contradictions_are_found_before_connecting(options: dict[str, str], text: str) -> None:
    with pytest.raises(FlussError) as caught:
        Config(options).validate()
    assert text in caught.value.message


def test_the_password_is_not_shown() -> None:
    config = Config({"security.sasl.username": "me", "security.sasl.password": "hush"})
    assert repr(config) == (
        "Config({'bootstrap.servers': '127.0.0.1:9123', 'security.sasl.username': 'me', "
        "'security.sasl.password': '******'})"
    )


def test_a_copy_is_independent_and_equal_by_value() -> None:
    config = Config({"writer.batch-size": 1000})
    twin = config.copy()
    assert twin == config
    twin.writer_batch_size = 2000
    assert twin != config
    assert config.writer_batch_size == 1000


def test_addresses() -> None:
    assert parse_addresses("a:1,b:2 , [::1]:3") == [("a", 1), ("b", 2), ("::1", 3)]
    for bad in ("a", "a:", ":1", "a:0", "a:65536", "a:x"):
        with pytest.raises(FlussError):
            parse_addresses(bad)


def test_misspelt_properties_and_other_forms_are_refused() -> None:
    config = Config()
    with pytest.raises(FlussError, match="no property 'bootstrap_server'; did you mean 'bootstrap_servers'"):
        config.bootstrap_server = "x:1"
    with pytest.raises(FlussError, match=r"Config\(\{\"bootstrap.servers\": 'host:9123'\}\)"):
        Config("host:9123")  # type: ignore[arg-type]
    with pytest.raises(FlussError, match="takes a dict of options, got list"):
        Config([("bootstrap.servers", "x:1")])  # type: ignore[arg-type]
    assert config == Config()


def test_only_what_was_set_is_explicit() -> None:
    config = Config({"writer.dynamic-batch-size.enabled": "false"})
    assert config.writer_dynamic_batch_size_enabled is False
    config.writer_acks = "1"
    assert config.explicit() == {"writer_dynamic_batch_size_enabled": False, "writer_acks": "1"}
    config.explicit()["writer_acks"] = "0"
    assert config.writer_acks == "1", "it is a copy"
