"""Tables with a lake on a real server, tiered by a real tiering service, and what everybody sees of them."""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import duckdb
import polars
import pyarrow as pa
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table

import fluss
from fluss.api.connection import engine_of
from fluss.errors import FlussError
from fluss.lake.tables.interface.format import LakeSplit
from fluss.lake.tables.open_lake import lake_of, lake_properties_of
from fluss.lake.tiering.local_runner import LocalRunner
from fluss.lake.tiering.options import TieringOptions
from fluss.lake.tiering.progress import Quiet
from fluss.lake.tiering.rounds import RoundReport
from fluss.lake.tiering.service import ServiceWatcher, TieringService
from fluss.model.paths import TableBucket, TablePath
from fluss.values.schema import model_schema

LAKE = {"table.datalake.enabled": "true"}
# Two cores at least, so that several splits run; short waits.
OPTIONS = TieringOptions(cores=2, heartbeat_seconds=0.2, patience_seconds=30.0, maintenance=False)
PEOPLE = pa.schema([pa.field("id", pa.int64(), False), ("name", pa.string()), ("age", pa.int32())])
REGIONAL = pa.schema([pa.field("region", pa.string(), False), *PEOPLE])
FAR_FUTURE_MS = 10**14
_numbers = itertools.count()

Rows = list[dict[str, Any]]
Steps = Mapping[str, Callable[[TablePath], object]]


def person(number: int, **more: Any) -> dict[str, Any]:
    """A row of `PEOPLE`."""
    return {"id": number, "name": f"n{number}", "age": number % 90, **more}


def by_id(rows: Sequence[Mapping[str, Any]]) -> Rows:
    return sorted((dict(row) for row in rows), key=lambda row: (row["id"], str(row)))


class LakeTable:
    """A table with a lake: written through the client, tiered on request, read by everybody."""

    def __init__(
        self,
        db: fluss.Database,
        schema: pa.Schema | fluss.Schema = PEOPLE,
        *,
        partitions: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        bucket_count: int = 2,
        **options: Any,
    ) -> None:
        self.db = db
        self.name = f"fluss.t{next(_numbers)}"
        self.path = TablePath("fluss", self.name.removeprefix("fluss."))
        if partitions:
            options["partition_keys"] = ["region"]
        db.create_table(
            self.name, schema, bucket_count=bucket_count, properties={**LAKE, **(properties or {})}, **options
        )
        for region in partitions:
            db.create_partition(self.name, {"region": region})

    def tier(self, options: TieringOptions = OPTIONS, watcher: ServiceWatcher | None = None) -> RoundReport:
        """One pass over this table in this process; an error is raised."""
        with tiering_service(self.db, options, watcher or Watching(), [self.path]) as service:
            (result,) = service.once()
        if isinstance(result, FlussError):
            raise result
        if result.error is not None:
            raise result.error
        return result

    # ---- what is in the lake ----

    @property
    def properties(self) -> dict[str, str]:
        return self.db.info(self.name).properties

    def outside(self, properties: Mapping[str, str] | None = None) -> Table:
        """The lake table for a program that knows only where the catalog is."""
        _, shown = lake_properties_of(properties or self.properties)
        return load_catalog("fluss", **shown).load_table((self.path.database_name, self.path.table_name))

    def seen_by_all(self) -> dict[str, Rows]:
        """The user's columns as each reader of the lake shows them."""
        table = self.outside()
        names = self.db.info(self.name).get_column_names()
        arrow = table.scan().to_arrow()
        connection = duckdb.connect()
        connection.register("t", arrow)
        seen = {
            "ours": self.lake_rows(),
            "pyiceberg": arrow.select(names).to_pylist(),
            "polars": polars.scan_iceberg(table, reader_override="pyiceberg").select(names).collect().to_dicts(),
            "duckdb": connection.sql(f"SELECT {', '.join(names)} FROM t").to_arrow_table().to_pylist(),
        }
        tasks = list(table.scan().plan_files())
        if tasks and not any(task.delete_files for task in tasks):
            files = [task.file.file_path.removeprefix("file://") for task in tasks]
            parquet = f"read_parquet({files!r}, hive_partitioning = false, union_by_name = true)"
            query = connection.sql(f"SELECT {', '.join(names)} FROM {parquet}")
            seen["duckdb on files"] = query.to_arrow_table().to_pylist()
        return {reader: by_id(rows) for reader, rows in seen.items()}

    def lake_rows(self, columns: Sequence[str] | None = None) -> Rows:
        """What our own reader shows."""
        lake = lake_of(self.properties)
        try:
            table = lake.load(self.path)
            schema = model_schema(self.db.info(self.name).get_schema())
            batches = table.target().read_files(table.plan_files(), schema, columns)
            return [row for batch in batches for row in batch.to_pylist()]
        finally:
            lake.close()

    def lost_files(self) -> list[str]:
        """Data files of rounds that never committed; metadata of a commit that lost a race stays behind, too."""
        lake = lake_of(self.properties)
        try:
            unknown = lake.load(self.path).unreferenced_files(FAR_FUTURE_MS)
            return [path for path in unknown if path.endswith(".parquet")]
        finally:
            lake.close()

    def lose_a_round(self, rows: Rows) -> str:
        """What a round leaves behind that dies before its commit: a file that no snapshot knows; its address."""
        lake = lake_of(self.properties)
        try:
            table = lake.load(self.path)
            bucket = TableBucket(self.db.info(self.name).table_id, None, 0)
            times = [dt.datetime.now(dt.UTC)] * len(rows)
            arrow = pa.Table.from_pylist(rows, PEOPLE).append_column("__offset", pa.array(range(len(rows)), pa.int64()))
            arrow = arrow.append_column("__timestamp", pa.array(times, pa.timestamp("ms", "UTC")))
            split = LakeSplit(bucket, None, 0, len(rows))
            address: str = table.target().write_split(split, arrow.to_batches()).added[0].file_path
            return address
        finally:
            lake.close()

    def check(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Everybody sees exactly these rows in the lake."""
        wanted = by_id(rows)
        for reader, seen in self.seen_by_all().items():
            assert seen == wanted, reader


class Watching(Quiet):
    """Remembers what it was told; `at` are things to do when a round reaches a step."""

    def __init__(self, at: Steps | None = None) -> None:
        self.at = dict(at or {})
        self.steps: list[str] = []
        self.reports: list[RoundReport] = []
        self.errors: list[FlussError] = []
        self.splits = 0

    def planned(self, path: TablePath, plan: Any) -> None:
        self.splits += len(plan.splits)

    def step(self, path: TablePath, name: str) -> None:
        self.steps.append(name)
        if name in self.at:
            self.at[name](path)

    def finished(self, report: RoundReport) -> None:
        self.reports.append(report)

    def failed(self, path: TablePath, error: FlussError) -> None:
        self.errors.append(error)


@contextmanager
def tiering_service(
    db: fluss.Database,
    options: TieringOptions = OPTIONS,
    watcher: ServiceWatcher | None = None,
    tables: Sequence[TablePath] | None = None,
) -> Iterator[TieringService]:
    """A tiering service with the local engine."""
    engine = engine_of(db.connection)
    runner = LocalRunner(engine, options.cores)
    service = TieringService(engine, runner, watcher or Watching(), options, tables)
    try:
        yield service
    finally:
        service.close()
        runner.close()
