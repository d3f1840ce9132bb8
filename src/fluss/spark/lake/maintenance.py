"""`fluss.spark.maintain`: maintenance of lake tables, with files rewritten and removed by Spark tasks.

Descriptions of files are sent to the tasks and descriptions of new files come back; the tasks read and write the rows,
which never pass through the JVM. The driver decides what is to be done and commits it; after that, tasks remove the
files that are no longer needed.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from fluss.api.connection import engine_of
from fluss.errors import FlussError
from fluss.lake.maintenance.compaction import CompactionPlan, CompactionResult
from fluss.lake.maintenance.expiry import ExpiryPlan, ExpiryResult
from fluss.lake.maintenance.orphans import OrphanPlan, OrphanResult
from fluss.lake.maintenance.service import TableMaintenance, open_maintenance
from fluss.spark.options.parsing import client_options
from fluss.spark.sessions.connection_cache import lease
from fluss.spark.sessions.session_cluster import merged_options, table_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JOBS = ("compact", "expire", "clean")
_RESULT_SCHEMA = pa.schema([("number", pa.int64()), ("result", pa.binary())])

Task = TypeVar("Task")
Result = TypeVar("Result")


class SparkTaskRunner:
    """Runs tasks of maintenance or of tiering rounds as Spark tasks, one each."""

    def __init__(self, spark: SparkSession, what: str = "lake maintenance") -> None:
        self._spark = spark
        self._what = what

    def run(self, function: Callable[[Task], Result], tasks: Sequence[Task]) -> Iterator[Result]:
        """Run the tasks as one Spark job; the results come in the order of the tasks, after the job has ended."""
        if not tasks:
            return iter(())
        numbers = self._spark.range(0, len(tasks), 1, len(tasks))
        work = _Work(pickle.dumps(function), [pickle.dumps(task) for task in tasks])
        try:
            rows = numbers.mapInArrow(work, "number long, result binary").collect()
        except Exception as error:  # of Py4J or Spark Connect, which have no common class
            first_line = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise FlussError(f"the Spark job of {self._what} failed: {first_line}") from error
        results = {int(row.number): pickle.loads(row.result) for row in rows}
        return iter([results[number] for number in range(len(tasks))])


class _Work:
    """The function that workers run; each worker receives it with the descriptions of all tasks."""

    def __init__(self, function: bytes, tasks: list[bytes]) -> None:
        self._function, self._tasks = function, tasks

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        function = pickle.loads(self._function)
        for batch in batches:
            for number in batch.column(0).to_pylist():
                result = pickle.dumps(function(pickle.loads(self._tasks[number])))
                yield pa.RecordBatch.from_pylist([{"number": number, "result": result}], _RESULT_SCHEMA)


@dataclass(frozen=True)
class Maintained:
    """The plan of one job on one table, and its result (None in a dry run)."""

    table: str
    job: str
    plan: CompactionPlan | ExpiryPlan | OrphanPlan
    result: CompactionResult | ExpiryResult | OrphanResult | None

    def __str__(self) -> str:
        return str(self.plan) if self.result is None else f"{self.job} {self.table}: {self.result}"


def maintain(
    spark: SparkSession,
    tables: str | Sequence[str],
    bootstrap: str | None = None,
    *,
    jobs: Sequence[str] = JOBS,
    dry_run: bool = False,
    options: Mapping[str, object] | None = None,
    lake_options: Mapping[str, str] | None = None,
) -> list[Maintained]:
    """Maintain lake tables now, whether or not maintenance is due::

        for done in fluss.spark.maintain(spark, "shop.orders", "localhost:9123", dry_run=True):
            print(done)

    Args:
        tables: one table or several.
        bootstrap: the cluster; the session's `spark.sql.fluss.bootstrap.servers` if not given.
        jobs: some of `compact` (rewrites many small files as a few large ones), `expire` (removes old snapshots and the
            files that only they need), `clean` (removes files that no snapshot knows), done in this order.
        dry_run: only report what would be done.
        options: client options, as those of `format("fluss")`.
        lake_options: catalog properties that the server does not send, such as secrets.
    """
    wanted = [jobs] if isinstance(jobs, str) else list(jobs)
    unknown = [job for job in wanted if job not in JOBS]
    if unknown:
        raise FlussError(f"unknown job {unknown[0]!r} for maintain(); the jobs are {', '.join(JOBS)}")
    given = dict(options or {})
    if bootstrap is not None:
        given["bootstrap.servers"] = bootstrap
    names = [tables] if isinstance(tables, str) else list(tables)
    done: list[Maintained] = []
    with lease(client_options(merged_options(spark, given))) as connection:
        for name in names:
            path = table_path(name)
            with open_maintenance(
                engine_of(connection), path, runner=SparkTaskRunner(spark), lake_overrides=lake_options
            ) as maintenance:
                done += [_do(maintenance, str(path), job, dry_run) for job in JOBS if job in wanted]
    return done


def _do(maintenance: TableMaintenance, table: str, job: str, dry_run: bool) -> Maintained:
    if job == "compact":
        compaction = maintenance.plan_compaction()
        return Maintained(table, job, compaction, None if dry_run else maintenance.compact(compaction))
    if job == "expire":
        return Maintained(table, job, maintenance.plan_expiry(), None if dry_run else maintenance.expire())
    orphans = maintenance.plan_orphans()
    return Maintained(table, job, orphans, None if dry_run else maintenance.remove_orphans(orphans))
