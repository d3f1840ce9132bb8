"""Spark with our tables, compared with Parquet files and with Python sources that do nothing, in one run.

Every step of a round follows or precedes what it is compared with, and odd rounds run backwards, so that disturbances
of the machine affect both. The first round is discarded. Rows are cached in Spark before they are written, so that
creating them is not measured; rows that are read go to Spark's sink that does nothing.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from bench.figures import Run, add_file_options, machine_text, settings_of, write_files
from bench.run import WARM_MEGABYTES, Figures, warm_page_cache
from bench.spark_report import figures_of, markdown
from tools.servers.server_process import ServerProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from bench.spark_rounds import SparkRounds

SPARK_SETTINGS = {
    "spark.log.level": "ERROR",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


def measure(rounds: SparkRounds, count: int) -> Figures:
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
    parser = argparse.ArgumentParser(prog="python -m bench --spark", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="measured rounds; one more is discarded, except with 0")
    parser.add_argument("--rows", type=int, default=300_000, help="rows of sixteen columns")
    parser.add_argument("--key-rows", type=int, default=1_000_000, help="rows of five columns of primary-key tables")
    parser.add_argument("--times", type=int, default=5, help="queries of one row and single rows, per round")
    parser.add_argument("--tiny-batches", type=int, default=20, help="micro-batches of few rows, per round")
    parser.add_argument("--cores", type=int, default=2, help="cores of Spark, and tasks that write")
    parser.add_argument("--buckets", type=int, default=2)
    parser.add_argument("--tablets", type=int, default=1, help="tablet processes of our server")
    parser.add_argument("--flush", choices=("always", "interval", "os"), default="always", help="log.flush of ours")
    parser.add_argument("--only", nargs="+", help="names of the steps to run, see --json for them")
    parser.add_argument("--warm-megabytes", type=int, default=WARM_MEGABYTES, help="written and deleted first")
    add_file_options(parser)
    return parser.parse_args(arguments)


def run(options: argparse.Namespace, start_session: Callable[[], SparkSession]) -> tuple[str, Run]:
    """Measure, and write the requested files. Return the table and its figures."""
    from bench.spark_rounds import SparkRounds

    directory = Path(tempfile.mkdtemp(prefix="fluss-bench-", dir=options.directory))
    began = time.monotonic()
    try:
        warm_page_cache(directory, options.warm_megabytes)
        config = {"log.flush": options.flush}
        with ServerProcess(directory / "data", tablets=options.tablets, config=config) as server:
            spark = start_session()
            with SparkRounds(spark, server.address, directory, options) as rounds:
                figures = measure(rounds, options.rounds)
            version = spark.version
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    title = f"{machine_text()}, Spark {version}; {options.rows} rows of 16 columns, {options.key_rows} of 5; "
    title += f"log.flush={options.flush}, {options.tablets} tablet(s), {options.buckets} buckets, "
    title += f"medians of {options.rounds} rounds, {time.monotonic() - began:.0f} s in all."
    text = markdown(figures.rounds, title)
    write_files(options, text, title, figures.rounds)
    return text, Run("spark", {**settings_of(options), "spark": version}, figures_of(figures.rounds))


def main(arguments: list[str]) -> Run:
    """Measure and print."""
    import fluss.spark

    options = parse(arguments)

    def start_session() -> SparkSession:
        return fluss.spark.session("bench", f"local[{options.cores}]", SPARK_SETTINGS)

    text, measured = run(options, start_session)
    print(text)
    return measured
