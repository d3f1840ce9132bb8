"""Options of `format("fluss")`: valid ones are parsed, others are refused with a reason."""

from __future__ import annotations

import pickle

import pytest

from fluss import FlussError
from fluss.spark.options.log_positions import Position, parse_timestamp
from fluss.spark.options.parsing import FlussOptions, parse_options
from fluss.spark.options.session_options import SESSION_OPTIONS_VARIABLE

NEEDED = {"bootstrap.servers": "localhost:9123", "table": "shop.orders"}


def parsed(**options: str) -> FlussOptions:
    """Options whose names have dots are given with underscores."""
    return parse_options({**NEEDED, **{name.replace("__", "."): value for name, value in options.items()}})


def test_the_required_options() -> None:
    options = parsed()
    assert str(options.table) == "shop.orders"
    assert options.client.config().bootstrap_servers == "localhost:9123"
    assert (options.mode, options.columns, options.limit, options.read.start) == (None, None, None, None)
    assert options.stream.fail_on_data_loss


def test_a_path_names_the_table_and_a_plain_name_the_default_database() -> None:
    options = parse_options({"bootstrapServers": "h:1", "path": "orders"})
    assert str(options.table) == "fluss.orders"


def test_the_changelog_of_a_table_by_its_name() -> None:
    options = parsed(table="shop.orders$changelog")
    assert (str(options.table), options.mode) == ("shop.orders", "changelog")
    with pytest.raises(FlussError, match=r"mode is 'state'.*\$changelog"):
        parsed(table="shop.orders$changelog", mode="state")
    assert parsed(table="shop.orders$binlog", mode="binlog") == parsed(table="shop.orders", mode="binlog")
    with pytest.raises(FlussError, match=r"mode is 'changelog'.*\$binlog"):
        parsed(table="shop.orders$binlog", mode="changelog")


def test_everything_at_once_pickles_and_hashes() -> None:
    options = parsed(
        columns="a, b", limit="7", mode="Changelog", start="timestamp:5", end='{"0": 3}', maxRowsPerTrigger="9",
        failOnDataLoss="false", delivery="at-least-once", rowKindColumn="k", nanosAs="bigint",
        scan__maxBytesPerPartition="1000", client__writer__acks="all",
    )  # fmt: skip
    assert options.columns == ("a", "b")
    assert options.read.start == Position("timestamp", timestamp_ms=5)
    assert options.read.end == Position("offsets", offsets=((None, 0, 3),))
    assert pickle.loads(pickle.dumps(options)) == options
    assert len({options, parsed()}) == 2


def test_a_password_is_not_shown() -> None:
    options = parsed(
        client__security__protocol="sasl",
        client__security__sasl__username="alice",
        client__security__sasl__password="secret",
    )
    assert options.client.config().security_sasl_password == "secret"
    assert "secret" not in repr(options)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"maxRowPerTrigger": "5"}, r"no option 'maxrowpertrigger': did you mean maxRowsPerTrigger"),
        ({"zzz": "5"}, r"no option 'zzz': its options are as_of, bootstrap.servers, "),
        ({"limit": "-1"}, r"option limit must be a whole number of at least 0, got '-1'"),
        ({"limit": "many"}, r"option limit must be a whole number"),
        ({"mode": "fast"}, r"option mode must be one of state, changelog, binlog, lake, got 'fast'"),
        ({"failOnDataLoss": "no"}, r"option failOnDataLoss must be true or false, got 'no'"),
        ({"columns": "a,,b"}, r"option columns must be column names"),
        ({"columns": "a,a"}, r"option columns must not have duplicates"),
        ({"start": "yesterday"}, r"option start must be earliest, latest, full, timestamp:"),
        ({"start": "timestamp:soon"}, r"option start must be milliseconds since 1970 or a time"),
        ({"start": "{"}, r"option start is not valid JSON"),
        ({"start": '{"0": -5}'}, r"numbers of at least 0, got -5"),
        ({"end": "full"}, r"option end must be earliest, latest"),
        ({"start": "latest", "starting": "earliest"}, r"start='latest' and starting='earliest' have the same meaning"),
        ({"scan.startup.mode": "timestamp"}, r"scan.startup.timestamp go together"),
        ({"scan.startup.mode": "full", "start": "full"}, r"start and scan.startup.mode both set the start"),
        ({"scan.incremental.end.timestamp": "5"}, r"needs scan.incremental.start.timestamp: give both"),
        ({"scan.incremental.start.timestamp": " "}, r"must be milliseconds"),
        ({"scan.incremental.start.timestamp": "5", "scan.incremental.end.timestamp": "5"}, r"must be before the end"),
        ({"scan.incremental.start.timestamp": "5", "read.optimized": "true"}, r"give only one of them"),
        ({"timeZone": "Mars", "start": "timestamp:2026-08-01"}, r"option timeZone must be a time zone"),
        ({"table": "a.b.c"}, r"option table must be 'database.table' or 'table', got 'a.b.c'"),
        ({"client.writer.akks": "all"}, r"akks"),
        (
            {"client.writer.batch-timeout": "1s", "client.writer.batch-timeout-ms": "5"},
            r"client.writer.batch-timeout and client.writer.batch-timeout-ms have the same meaning but differ",
        ),
        ({"client.writer.acks": "5"}, r"writer.acks must be all, 1 or 0"),
        ({"bootstrap.servers": "nowhere"}, r"bootstrap.servers must be host:port"),
        ({"delivery": "never"}, r"option delivery must be one of exactly-once, at-least-once, got 'never'"),
        ({"transaction": "nightly"}, r"option transaction=.nightly. needs transactionBatch"),
        ({"transaction": "a b", "transactionBatch": "1"}, r"option transaction must be 1 to 100 letters"),
        ({"transactionBatch": "-1"}, r"option transactionBatch must be a whole number of at least 0"),
    ],
)  # fmt: skip
def test_refusals_have_the_option_the_value_and_what_is_allowed(options: dict[str, str], words: str) -> None:
    with pytest.raises(FlussError, match=words):
        parse_options({**NEEDED, **options})


@pytest.mark.parametrize(("missing", "words"), [("table", "needs a table"), ("bootstrap.servers", "needs the address")])
def test_missing_options_are_named(missing: str, words: str) -> None:
    with pytest.raises(FlussError, match=words):
        parse_options({key: value for key, value in NEEDED.items() if key != missing})


@pytest.mark.parametrize(
    ("text", "zone", "milliseconds"),
    [
        ("1785585600000", "UTC", 1785585600000),
        ("2026-08-01T12:00:00Z", "Asia/Tokyo", 1785585600000),
        ("2026-08-01T12:00:00+00:00", "Asia/Tokyo", 1785585600000),
        ("2026-08-01 12:00:00", "UTC", 1785585600000),
        ("2026-08-01 21:00:00", "Asia/Tokyo", 1785585600000),
        ("2026-08-01", "UTC", 1785542400000),
        ("2026-08-01T12:00:00.250", "UTC", 1785585600250),
    ],
)
def test_times(text: str, zone: str, milliseconds: int) -> None:
    assert parse_timestamp("start", text, zone) == milliseconds


def test_offsets_of_partitions() -> None:
    position = parsed(start='{"eu": {"0": 4, "1": 5}, "us": {"0": 6}}').read.start
    assert position is not None
    assert [position.offset_of("eu", 1), position.offset_of("us", 0), position.offset_of("us", 1)] == [5, 6, None]


def test_options_of_the_session_are_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SESSION_OPTIONS_VARIABLE, '{"bootstrap.servers": "other:1", "maxrowspertrigger": "3"}')
    options = parse_options({"table": "t"})
    assert (options.client.bootstrap_servers, options.stream.max_rows_per_trigger) == ("other:1", 3)
    assert parsed(maxRowsPerTrigger="4").stream.max_rows_per_trigger == 4


def test_another_spelling_of_an_option_of_the_client_wins_over_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    for session, query in (("batch-timeout-ms", "batch-timeout"), ("batch-timeout", "batch-timeout-ms")):
        monkeypatch.setenv(SESSION_OPTIONS_VARIABLE, f'{{"client.writer.{session}": "5"}}')
        assert parsed().client.config().writer_batch_timeout_ms == 5
        assert parsed(**{f"client.writer.{query}": "7"}).client.config().writer_batch_timeout_ms == 7
