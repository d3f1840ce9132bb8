"""``fluss tier``: the tiering service in the foreground, on Spark or in this process."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import logging
import signal
import sys
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from fluss.cli.client_flags import add_client_flags, add_lake_flags, client_settings, lake_settings, table_name
from fluss.errors import ErrorCode, FlussError

if TYPE_CHECKING:
    from fluss.api.connection import FlussConnection
    from fluss.lake.tiering.options import TieringOptions
    from fluss.lake.tiering.progress import Progress
    from fluss.lake.tiering.service import TieringService

EXIT_FAILED = 1
DEFAULT_EVERY = "30s"
DEFAULT_HEARTBEAT = "30s"
RECONNECT_SECONDS = 5.0


def add_parser(commands: Any) -> None:
    """Declare the subcommand and its flags."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "tier",
        help="move rows of tables into the lake",
        description="Move rows of tables with table.datalake.enabled=true into the lake. Without --once it asks the "
        "server for tables that are due, until SIGINT or SIGTERM, which end it after the running rounds. Exit code 0: "
        "success, 1: a table failed (with --once) or no round could be started, 2: wrong flags.",
    )
    add_client_flags(parser)
    add_lake_flags(parser)
    how_long = parser.add_mutually_exclusive_group()
    how_long.add_argument("--once", action="store_true", help="tier all existing rows, due or not, and end")
    how_long.add_argument(
        "--every",
        metavar="TIME",
        type=_seconds,
        help=f"how often to ask if no table is due, such as 1m; by default {DEFAULT_EVERY}",
    )
    engine = parser.add_mutually_exclusive_group()
    engine.add_argument(
        "--spark", action="store_true", help="run the work as Spark tasks; default if Spark is installed"
    )
    engine.add_argument("--local", action="store_true", help="run the work in threads of this process")
    parser.add_argument("--master", metavar="URL", help="the Spark cluster, by default this machine (local[*])")
    parser.add_argument(
        "--tables",
        metavar="DB.TABLE",
        nargs="+",
        help="tier only these tables, one round of each per interval of --every",
    )
    parser.add_argument(
        "--tables-at-once", metavar="N", type=_positive, default=2, help="tables to tier at the same time; by default 2"
    )
    parser.add_argument(
        "--cores",
        metavar="N",
        type=_positive,
        help="splits to run at the same time with --local; by default one per core",
    )
    parser.add_argument(
        "--heartbeat",
        metavar="TIME",
        type=_seconds,
        default=DEFAULT_HEARTBEAT,
        help="how often to send a heartbeat during a round, less than a third of the server's "
        f"lake.tiering.heartbeat-timeout; by default {DEFAULT_HEARTBEAT}",
    )
    parser.add_argument(
        "--on-data-loss",
        choices=("fail", "skip"),
        default="fail",
        help="what to do if rows of a log table expired before they were tiered; by default fail",
    )
    parser.add_argument("--no-maintenance", action="store_true", help="do no compaction, expiry or removal of orphans")
    parser.add_argument("--quiet", action="store_true", help="print errors, but no progress")
    parser.set_defaults(run=run, wrong_flags=parser.error)


def run(options: argparse.Namespace) -> int:
    """Connect, choose the engine, and tier until all rows are in the lake or a signal arrives."""
    from fluss.lake.tiering.progress import Progress

    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    if options.local and options.master is not None:
        options.wrong_flags("argument --master: not allowed with argument --local")
    every_seconds = options.every or _seconds(DEFAULT_EVERY)
    client = client_settings(options)
    stop = threading.Event()
    watcher = Progress(only_errors=options.quiet)
    with _stopping(stop), _service(options, client, stop, watcher) as service:
        if service is None:
            return 0
        if not options.once:
            service.run_until(stop, every_seconds)
            return 0
        results = service.once()
    watcher.ended(len(results))
    failed = [result for result in results if isinstance(result, FlussError) or result.error is not None]
    return EXIT_FAILED if failed else 0


def _seconds(text: str) -> float:
    """Parse the time of a flag; zero is refused, because the service would ask for tables without a pause."""
    from fluss.model.option_values import parse_duration_ms

    try:
        milliseconds = parse_duration_ms(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if milliseconds <= 0:
        raise argparse.ArgumentTypeError(f"must be greater than zero, got {text!r}")
    return milliseconds / 1000


def _positive(text: str) -> int:
    number = int(text) if text.isdecimal() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, got {text!r}")
    return number


def _tiering_options(options: argparse.Namespace, cores: int) -> TieringOptions:
    from fluss.lake.tiering.options import TieringOptions

    return TieringOptions(
        cores=cores,
        tables_at_once=options.tables_at_once,
        heartbeat_seconds=options.heartbeat,
        on_data_loss=options.on_data_loss,
        lake_overrides=lake_settings(options),
        maintenance=not options.no_maintenance,
    )


@contextlib.contextmanager
def _service(
    options: argparse.Namespace, client: dict[str, str], stop: threading.Event, watcher: Progress
) -> Iterator[TieringService | None]:
    """Build the service; None if a signal stopped the command before a server answered."""
    from fluss.api.connection import close_blocking, engine_of
    from fluss.lake.tiering.service import TieringService
    from fluss.model.paths import TablePath

    tables = None if options.tables is None else [TablePath(*table_name(name)) for name in options.tables]
    with contextlib.ExitStack() as closing:
        connection = _connection(client, None if options.once else stop)
        if connection is None:
            yield None
            return
        closing.callback(close_blocking, connection)
        runner, maintenance_runner, cores = _engine(options, client, connection, closing)
        closing.callback(runner.close)
        limits = _tiering_options(options, cores)
        service = TieringService(engine_of(connection), runner, watcher, limits, tables, maintenance_runner)
        closing.callback(service.close)
        yield service


def _connection(client: dict[str, str], stop: threading.Event | None) -> FlussConnection | None:
    """Connect. With `stop`, wait for a server that is not running yet, because the service may be started first."""
    from fluss.api.connection import FlussConnection
    from fluss.config import Config

    config = Config(client)
    while True:
        try:
            return FlussConnection.open(config)
        except FlussError as error:
            if stop is None or error.error_code != ErrorCode.NETWORK_EXCEPTION:
                raise
            print(f"fluss tier: {error.message}; trying again", file=sys.stderr)
            if stop.wait(RECONNECT_SECONDS):
                return None


def _engine(
    options: argparse.Namespace, client: dict[str, str], connection: Any, closing: contextlib.ExitStack
) -> tuple[Any, Any, int]:
    """The runners of rounds and of maintenance, from the flags or the installation, and the number of cores."""
    has_spark = importlib.util.find_spec("pyspark") is not None
    if options.spark or options.master is not None or (has_spark and not options.local):
        from fluss.spark import session
        from fluss.spark.lake.maintenance import SparkTaskRunner
        from fluss.spark.lake.tiering import SparkRunner, default_cores
        from fluss.spark.options.parsing import client_options

        spark = session("fluss tier", options.master)
        closing.callback(spark.stop)
        named = {key if key == "bootstrap.servers" else f"client.{key}": text for key, text in client.items()}
        return SparkRunner(spark, client_options(named)), SparkTaskRunner(spark), default_cores(spark)
    from fluss.api.connection import engine_of
    from fluss.lake.tiering.local_runner import LocalRunner
    from fluss.lake.tiering.options import TieringOptions

    if not options.local:
        print(
            "fluss tier: Spark is not installed (pip install 'flusspy[spark]'), so this process does the work",
            file=sys.stderr,
        )
    cores = options.cores or TieringOptions().cores
    return LocalRunner(engine_of(connection), cores), None, cores


@contextlib.contextmanager
def _stopping(stop: threading.Event) -> Iterator[None]:
    """Set `stop` on SIGINT or SIGTERM, which ends the service after its rounds; a second signal ends it at once."""
    previous: dict[int, Any] = {}

    def on_signal(number: int, frame: object) -> None:
        for each, handler in previous.items():
            signal.signal(each, handler)
        stop.set()
        print("fluss tier: stopping after the running rounds", file=sys.stderr)

    for each in (signal.SIGINT, signal.SIGTERM):
        previous[each] = signal.signal(each, on_signal)
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
