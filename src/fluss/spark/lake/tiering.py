"""`fluss.spark.tier`: the tiering service on Spark.

The driver plans rounds, commits them and talks to the coordinator; each split is a Spark task, which reads its log
range and writes Parquet files itself. Spark carries descriptions of splits to the tasks and descriptions of files back:
rows of tables never pass through the JVM.

A task that dies is retried as often as Spark is configured to (`spark.task.maxFailures`; never with a `local[n]`
master). When Spark gives up, the round fails, nothing is committed, and the next round does the work again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fluss.api.connection import engine_of
from fluss.errors import FlussError
from fluss.lake.tiering.options import TieringOptions
from fluss.lake.tiering.progress import Progress
from fluss.lake.tiering.rounds import RoundReport
from fluss.lake.tiering.service import ServiceWatcher, TieringService
from fluss.lake.tiering.split_tasks import tier_split
from fluss.lake.tiering.task_values import SplitResult, SplitWork, TableWork
from fluss.model.option_values import parse_duration_ms
from fluss.spark.lake.maintenance import SparkTaskRunner
from fluss.spark.options.parsing import ClientOptions, client_options
from fluss.spark.sessions.connection_cache import lease
from fluss.spark.sessions.session_cluster import merged_options, table_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SparkRunner:
    """Runs splits as Spark tasks, one each. Several threads may use it: Spark runs their jobs concurrently."""

    name = "Spark"

    def __init__(self, spark: SparkSession, client: ClientOptions) -> None:
        self._spark = spark
        self._client = client

    def run(
        self, work: TableWork, splits: Sequence[SplitWork], on_result: Callable[[SplitResult], None]
    ) -> list[SplitResult]:
        """Run the splits as one Spark job; results are known after it has ended."""
        runner = SparkTaskRunner(self._spark, f"a round of {work.table.path}")
        results = list(runner.run(_SplitTask(self._client, work), splits))
        for result in results:
            on_result(result)
        return results

    def close(self) -> None:
        """Do nothing: the session belongs to the caller that created it."""


@dataclass(frozen=True)
class _SplitTask:
    """A function that workers can unpickle and call for each split; it leases a connection of the worker."""

    client: ClientOptions
    work: TableWork

    def __call__(self, split: SplitWork) -> SplitResult:
        try:
            with lease(self.client) as connection:
                return tier_split(engine_of(connection), self.work, split)
        except FlussError as error:  # no connection; returned as a result, so that the files of other tasks are known
            return SplitResult(split.split, error=error)


def tier(
    spark: SparkSession,
    bootstrap: str | None = None,
    tables: str | Sequence[str] | None = None,
    *,
    once: bool | None = None,
    every: str | float | None = None,
    options: Mapping[str, object] | None = None,
    lake_options: Mapping[str, str] | None = None,
    tiering: TieringOptions | None = None,
    watcher: ServiceWatcher | None = None,
    stop: threading.Event | None = None,
) -> list[RoundReport]:
    """Tier tables into the lake, as Spark jobs::

        fluss.spark.tier(spark, "localhost:9123")                      # everything that exists now, then return
        fluss.spark.tier(spark, "localhost:9123", ["shop.orders"])     # one table
        fluss.spark.tier(spark, "localhost:9123", every="1m")          # as a service, until `stop` is set

    Args:
        bootstrap: the cluster; the session's `spark.sql.fluss.bootstrap.servers` if not given.
        tables: only these; else all with `table.datalake.enabled`.
        once: one pass over everything; the default unless `every` is given.
        every: the pause before the coordinator is asked again for due tables, in seconds or as a string.
        options: client options, such as `security.sasl.username`.
        lake_options: catalog properties that the server does not send, such as secrets.
        tiering: limits and thresholds.
        watcher: receives the progress of rounds; prints lines on standard error if not given.
        stop: ends the service after the running rounds.

    Returns:
        The report of each round; an empty list for a service. If a table failed, raises after all others are done.
    """
    if once and every is not None:
        raise FlussError("tier() got both once=True and every=...: give only one of them")
    given = dict(options or {})
    if bootstrap is not None:
        given["bootstrap.servers"] = bootstrap
    client = client_options(merged_options(spark, given))
    names = [tables] if isinstance(tables, str) else tables
    paths = None if names is None else [table_path(name) for name in names]
    limits = tiering or TieringOptions(cores=default_cores(spark))
    limits = replace(limits, lake_overrides={**limits.lake_overrides, **(lake_options or {})})
    every_seconds = None if every is None else _seconds(every)
    with lease(client) as connection:
        runner = SparkRunner(spark, client)
        service = TieringService(
            engine_of(connection), runner, watcher or Progress(), limits, paths, SparkTaskRunner(spark)
        )
        try:
            if every_seconds is None:
                return _reports(service.once())
            service.run_until(stop or threading.Event(), every_seconds)
            return []
        finally:
            service.close()


def default_cores(spark: SparkSession) -> int:
    """The number of tasks that Spark runs concurrently, as far as it is known."""
    try:
        return max(int(spark.sparkContext.defaultParallelism), 1)
    except Exception:  # Spark Connect has no context, and raises an error of its own
        return TieringOptions().cores


def _seconds(every: str | float) -> float:
    try:
        seconds = parse_duration_ms(every) / 1000 if isinstance(every, str) else float(every)
    except ValueError as error:
        raise FlussError(f"every: {error}") from None
    if not seconds > 0:
        raise FlussError(f"every must be greater than zero, got {every!r}")
    return seconds


def _reports(results: Sequence[RoundReport | FlussError]) -> list[RoundReport]:
    for result in results:
        error = result if isinstance(result, FlussError) else result.error
        if error is not None:
            raise error
    return [result for result in results if isinstance(result, RoundReport)]
