"""Tiering and union reads, compared with pyarrow writing and reading the same rows as Parquet, in one run.

Tiering: rows in the log become Iceberg files, with all steps of a round (planning, offsets, commits, syncs), by a
tiering service with the engine of `--engines`. For comparison one process writes the same rows with pyarrow, in the
same codec, synced. Union read: `db.to_arrow` of a table of which nine tenths are in the lake and one tenth is only in
the log (in a primary-key table half of it updates). For comparison pyarrow reads the same rows from one Parquet file.

Every step of a round follows or precedes what it is compared with, and odd rounds run backwards. The first round is
discarded.
"""

from __future__ import annotations

import argparse
import itertools
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import fluss
from bench.figures import Run, add_file_options, machine_text, settings_of, write_files
from bench.kv_workloads import FIRST_COUNT, UPDATED_COUNT, arrow_rows
from bench.run import WARM_MEGABYTES, Figures, warm_page_cache
from bench.spark_report import Measure, figures_of, markdown
from fluss.api.connection import engine_of
from fluss.lake.tiering.local_runner import LocalRunner
from fluss.lake.tiering.options import TieringOptions
from fluss.lake.tiering.progress import Quiet
from fluss.lake.tiering.rounds import RoundReport
from fluss.lake.tiering.service import TieringService
from fluss.model.paths import TablePath
from tools.servers.server_process import ServerProcess

LAKE = {"table.datalake.enabled": "true", "table.datalake.freshness": "1 d"}
ROW_GROUP_ROWS = 1 << 17
APPENDED_ROWS = 10_000
CODEC = "zstd"  # the codec of lake tables
PARQUET = "pyarrow writes Parquet"
SCAN = "pyarrow reads Parquet"
RATE = "k rows/s"
MEASURES = (
    Measure("tier_local", "tiering, 16 columns, `fluss tier --local`", RATE, "parquet_write", PARQUET, 1.0),
    Measure("tier_spark", "tiering, 16 columns, as Spark tasks", RATE, "parquet_write", PARQUET, 1.0),
    Measure("tier_keys", "first round of a primary-key table, 5 columns", RATE, "parquet_write_keys", PARQUET),
    Measure("tier_changes", "updates of a tenth of its rows", RATE, "parquet_write_keys", PARQUET),
    Measure("union_log", "union read of a log table, 16 columns", RATE, "parquet_read", SCAN, 0.5),
    Measure("union_keys", "union read of a primary-key table, 5 columns", RATE, "parquet_read_keys", SCAN, 0.5),
    Measure("lake_log", "the lake alone, 16 columns", RATE, "parquet_read", SCAN),
)

Note = Callable[[str, float], None]
Step = Callable[[Note], None]


def wide_rows(count: int) -> pa.Table:
    """Rows of about 0.9 KB: 8 numbers and 8 strings of about 100 characters that compress like logs."""
    numbers = np.arange(count, dtype=np.int64)
    columns: dict[str, Any] = {f"i{n}": numbers * (n + 1) for n in range(4)}
    columns |= {f"f{n}": numbers / (n + 3) for n in range(4)}
    middles = [f":{n:012d} {(n * 2654435761) % 2**32:08x} user agent and request path of event " for n in range(count)]
    for column in range(8):
        columns[f"s{column}"] = pa.array([f"{column}{middle}".ljust(102, "x") for middle in middles])
    return pa.table(columns)


def key_rows(first: int, count: int, version: int = FIRST_COUNT) -> pa.Table:
    """The five columns of the benchmarks of primary-key tables, `id` as the key."""
    rows = arrow_rows(np.arange(first, first + count, dtype=np.int64), version)
    fields = [field.with_nullable(field.name != "id") for field in rows.schema]
    return pa.Table.from_batches([rows]).cast(pa.schema(fields))


@contextmanager
def timed(note: Note, name: str, rows: int) -> Iterator[None]:
    """Note thousands of rows per second."""
    began = time.perf_counter()
    yield
    note(name, rows / (time.perf_counter() - began) / 1000)


class LakeRounds:
    """The steps, on one server. `prepare` creates the tables to read; the steps create the tables to tier."""

    def __init__(self, bootstrap: str, directory: Path, options: argparse.Namespace, spark: Any = None) -> None:
        self._bootstrap = bootstrap
        self._db = fluss.connect(bootstrap)
        self._directory = directory
        self._options = options
        self._spark = spark
        self._numbers = itertools.count()
        self._wide = wide_rows(options.rows)
        self._keys = key_rows(0, options.key_rows)
        self._limits = TieringOptions(cores=options.cores, maintenance=False)
        steps: dict[str, Step] = {"tier": self._tier_log, "keys": self._tier_keys, "read": self._read}
        self.steps = [step for name, step in steps.items() if options.only is None or name in options.only]

    def prepare(self) -> None:
        """Create tables of which a tenth is not in the lake yet, and Parquet files of the same rows."""
        tail = self._options.rows // 10
        self._create("read_log", self._wide.schema)
        self._append("read_log", self._wide.slice(0, self._options.rows - tail))
        self._tier("read_log")
        self._append("read_log", self._wide.slice(self._options.rows - tail))
        tail = self._options.key_rows // 10
        old, new = self._options.key_rows - tail // 2, tail // 2
        self._create("read_keys", self._keys.schema, ["id"])
        self._db.upsert("read_keys", self._keys.slice(0, old))
        self._tier("read_keys")
        self._db.upsert("read_keys", self._keys.slice(old))
        self._db.upsert("read_keys", key_rows(0, new, UPDATED_COUNT))
        for name, rows in (("wide", self._wide), ("keys", self._keys)):
            self._write_parquet(name, rows)

    def close(self) -> None:
        self._db.close()

    # ---- steps ----

    def _tier_log(self, note: Note) -> None:
        for engine in self._options.engines:
            name = self._name()
            self._create(name, self._wide.schema)
            self._append(name, self._wide)
            with timed(note, f"tier_{engine}", self._options.rows):
                self._tier(name, engine)
            self._db.drop_table(name)
        with timed(note, "parquet_write", self._options.rows):
            self._write_parquet(self._name(), self._wide)

    def _tier_keys(self, note: Note) -> None:
        name, count = self._name(), self._options.key_rows
        self._create(name, self._keys.schema, ["id"])
        self._db.upsert(name, self._keys)
        with timed(note, "tier_keys", count):
            self._tier(name)
        changed = key_rows(0, count // 10, UPDATED_COUNT)
        self._db.upsert(name, changed)
        with timed(note, "tier_changes", changed.num_rows):
            self._tier(name)
        self._db.drop_table(name)
        with timed(note, "parquet_write_keys", count):
            self._write_parquet(self._name(), self._keys)

    def _read(self, note: Note) -> None:
        rows, keys = self._options.rows, self._options.key_rows
        with timed(note, "union_log", rows):
            found = self._db.to_arrow("read_log").num_rows
        assert found == rows, f"{found} rows instead of {rows}"
        with timed(note, "parquet_read", rows):
            pq.read_table(self._file("wide"))
        with timed(note, "union_keys", keys):
            found = self._db.to_arrow("read_keys", union=True).num_rows
        assert found == keys, f"{found} rows instead of {keys}"
        with timed(note, "parquet_read_keys", keys):
            pq.read_table(self._file("keys"))
        tiered = rows - rows // 10
        with timed(note, "lake_log", tiered):
            found = self._db.to_arrow("read_log", read_optimized=True).num_rows
        assert found == tiered, f"{found} rows instead of {tiered}"

    # ---- helpers ----

    def _name(self) -> str:
        return f"made_{next(self._numbers)}"

    def _file(self, name: str) -> Path:
        return self._directory / f"{name}.parquet"

    def _write_parquet(self, name: str, rows: pa.Table) -> None:
        with self._file(name).open("wb") as file:
            pq.write_table(rows, file, compression=CODEC, row_group_size=ROW_GROUP_ROWS)
            file.flush()
            os.fsync(file.fileno())

    def _create(self, name: str, schema: pa.Schema, keys: list[str] | None = None) -> None:
        self._db.create_table(name, schema, primary_keys=keys, bucket_count=self._options.buckets, properties=LAKE)

    def _append(self, name: str, rows: pa.Table) -> None:
        for batch in rows.to_batches(APPENDED_ROWS):
            self._db.append(name, pa.Table.from_batches([batch]))

    def _tier(self, name: str, engine: str = "local") -> None:
        path = TablePath("fluss", name)
        if engine == "spark":
            import fluss.spark

            reports = fluss.spark.tier(self._spark, self._bootstrap, [str(path)], tiering=self._limits, watcher=Quiet())
            assert len(reports) == 1
            return
        client = engine_of(self._db.connection)
        runner = LocalRunner(client, self._options.cores)
        service = TieringService(client, runner, Quiet(), self._limits, [path])
        try:
            (result,) = service.once()
        finally:
            service.close()
            runner.close()
        if not isinstance(result, RoundReport):
            raise result


def measure(rounds: LakeRounds, count: int) -> Figures:
    """Run the rounds, after one that is discarded unless it is the only one."""
    figures = Figures()
    for number in range(count + 1):
        kept = figures if number or not count else Figures()
        for step in rounds.steps[:: -1 if number % 2 else 1]:
            step(kept.add)
        print(f"  round {number} of {count}", file=sys.stderr, flush=True)
    return figures


def parse(arguments: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench --lake", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="measured rounds; one more is discarded, except with 0")
    parser.add_argument("--rows", type=int, default=1_200_000, help="rows of sixteen columns")
    parser.add_argument("--key-rows", type=int, default=4_000_000, help="rows of five columns of primary-key tables")
    parser.add_argument("--engines", nargs="+", choices=("local", "spark"), default=["local", "spark"])
    parser.add_argument("--cores", type=int, default=2, help="splits at the same time")
    parser.add_argument("--buckets", type=int, default=2)
    parser.add_argument("--tablets", type=int, default=1, help="tablet processes of the server")
    parser.add_argument("--only", nargs="+", choices=("tier", "keys", "read"), help="steps to run")
    parser.add_argument("--warm-megabytes", type=int, default=WARM_MEGABYTES, help="written and deleted first")
    add_file_options(parser)
    return parser.parse_args(arguments)


def run(options: argparse.Namespace) -> tuple[str, Run]:
    """Measure, and write the requested files. Return the table and its figures."""
    directory = Path(tempfile.mkdtemp(prefix="fluss-bench-", dir=options.directory))
    began = time.monotonic()
    try:
        warm_page_cache(directory, options.warm_megabytes)
        with ExitStack() as stack:
            server = stack.enter_context(ServerProcess(directory / "data", tablets=options.tablets))
            spark = None
            if "spark" in options.engines:
                import fluss.spark
                from bench.spark import SPARK_SETTINGS

                spark = fluss.spark.session("bench", f"local[{options.cores}]", SPARK_SETTINGS)
                stack.callback(spark.stop)
            rounds = LakeRounds(server.address, directory, options, spark)
            stack.callback(rounds.close)
            if options.only is None or "read" in options.only:
                rounds.prepare()
            figures = measure(rounds, options.rounds)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    title = f"{machine_text()}; {options.rows} rows of 16 columns, {options.key_rows} of 5; "
    title += f"{options.buckets} buckets, {options.cores} splits at once, {options.tablets} tablet(s), "
    title += f"medians of {options.rounds} rounds, {time.monotonic() - began:.0f} s in all."
    text = markdown(figures.rounds, title, MEASURES)
    write_files(options, text, title, figures.rounds)
    return text, Run("lake", settings_of(options), figures_of(figures.rounds, MEASURES))


def main(arguments: list[str]) -> Run:
    """Measure and print."""
    text, measured = run(parse(arguments))
    print(text)
    return measured
