"""``fluss lake compact|expire|clean``: maintenance of one lake table, now."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
from collections.abc import Callable
from typing import Any

from fluss.cli.client_flags import add_client_flags, add_lake_flags, client_settings, lake_settings, table_name
from fluss.errors import ErrorCode, FlussError

_JOBS = {
    "compact": "rewrite many small files as a few large ones, without deleted rows",
    "expire": "remove old snapshots from the table, and the files that only they need",
    "clean": "remove files that no snapshot knows, left by rounds that died",
}

_WORK = {"compact": "rewrite", "expire": "remove", "clean": "remove"}


def add_parser(commands: Any) -> None:
    """Declare the subcommand and its flags."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "lake",
        help="maintain the lake table of a table",
        description="Maintain a lake table, now. Tiering services do it automatically when it is due, unless the table "
        "has table.datalake.auto-compaction=false or table.datalake.auto-expire-snapshot=false.",
    )
    jobs = parser.add_subparsers(dest="job", metavar="JOB", required=True)
    for name, text in _JOBS.items():
        job = jobs.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
        add_client_flags(job)
        add_lake_flags(job)
        job.add_argument("--table", metavar="DB.TABLE", required=True, help="the table whose lake table is maintained")
        job.add_argument("--dry-run", action="store_true", help="print what would be done, and change nothing")
        job.add_argument(
            "--spark", action="store_true", help=f"{_WORK[name]} files in Spark tasks, not in threads here"
        )
        job.add_argument("--master", metavar="URL", help="the Spark cluster, by default this machine (local[*])")
        job.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Connect and run one maintenance job on the table."""
    from fluss.api.connection import FlussConnection, close_blocking, engine_of
    from fluss.config import Config
    from fluss.lake.maintenance.service import open_maintenance
    from fluss.model.paths import TablePath

    with contextlib.ExitStack() as closing:
        connection = FlussConnection.open(Config(client_settings(options)))
        closing.callback(close_blocking, connection)
        maintenance = closing.enter_context(
            open_maintenance(
                engine_of(connection),
                TablePath(*table_name(options.table)),
                runner=_runner(options, closing),
                lake_overrides=lake_settings(options),
            )
        )
        jobs: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
            "compact": (maintenance.plan_compaction, maintenance.compact),
            "expire": (maintenance.plan_expiry, maintenance.expire),
            "clean": (maintenance.plan_orphans, maintenance.remove_orphans),
        }
        plan, do = jobs[options.job]
        print(plan() if options.dry_run else do())
    return 0


def _runner(options: argparse.Namespace, closing: contextlib.ExitStack) -> Any:
    """The runner of the tasks; None for threads of this process, and for a dry run, which has no tasks."""
    if not options.spark or options.dry_run:
        return None
    if importlib.util.find_spec("pyspark") is None:
        raise FlussError(
            "--spark needs Spark: run pip install 'flusspy[spark]', or leave the flag out",
            ErrorCode.INVALID_CONFIG_EXCEPTION,
        )
    from fluss.spark import session
    from fluss.spark.lake.maintenance import SparkTaskRunner

    spark = session("fluss lake", options.master)
    closing.callback(spark.stop)
    return SparkTaskRunner(spark)
