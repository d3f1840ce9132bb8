"""A Spark Declarative Pipeline over tables: `python examples/declarative_pipeline.py`, with a server inside.

The pipeline itself is in `declarative/`: a log table of orders is read, paid orders are appended to a second log table
exactly once, and the newest order of each customer is kept in a primary-key table. The pipeline runs twice; the second
run reads only the orders that arrived in between.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pyarrow as pa

import fluss
from fluss.spark.java.java_runtime import prepare_environment

PROJECT = Path(__file__).with_name("declarative")
ORDERS = pa.schema([("id", pa.int64()), ("customer", pa.string()), ("amount", pa.float64()), ("paid", pa.bool_())])
PAID_ORDERS = pa.schema([("id", pa.int64()), ("customer", pa.string()), ("amount", pa.float64())])
LAST_ORDERS = pa.schema(
    [pa.field("customer", pa.string(), nullable=False), ("id", pa.int64()), ("amount", pa.float64())]
)
RUN_SECONDS = 300


def create_tables(db: fluss.Database) -> None:
    """Create the three tables of the pipeline."""
    db.create_database("shop")
    db.create_table("shop.orders", ORDERS)
    db.create_table("shop.paid_orders", PAID_ORDERS)
    db.create_table("shop.last_orders", LAST_ORDERS, primary_keys=["customer"])


def lay_out(folder: Path, address: str) -> Path:
    """Copy the project of the pipeline, and fill in the server's address and a folder for checkpoints."""
    project = folder / "project"
    shutil.copytree(PROJECT, project, ignore=shutil.ignore_patterns("__pycache__"))
    specification = project / "spark-pipeline.yml"
    text = specification.read_text(encoding="utf-8").replace("${BOOTSTRAP_SERVERS}", address)
    specification.write_text(text.replace("${STORAGE}", (folder / "storage").as_uri()), encoding="utf-8")
    return project


def run_pipeline(project: Path) -> None:
    """Run `spark-pipelines run`, which ends when all existing rows are read."""
    prepare_environment({})
    program = Path(os.environ["SPARK_HOME"]) / "bin" / "spark-pipelines"
    command = [str(program), "--conf", "spark.ui.enabled=false", "--conf", "spark.driver.memory=1g", "run"]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=RUN_SECONDS)
    if done.returncode != 0:
        raise SystemExit(f"the pipeline failed with code {done.returncode}:\n{done.stdout}\n{done.stderr}")


def show(db: fluss.Database) -> None:
    """Print the result of the pipeline."""
    print("  paid orders:", sorted(db.scan("shop.paid_orders")["id"].to_pylist()))
    for row in sorted(db.to_arrow("shop.last_orders").to_pylist(), key=lambda row: row["customer"]):
        print(f"  last order of {row['customer']}: number {row['id']} over {row['amount']:.2f}")


def main() -> None:
    """Run the pipeline twice, with new orders in between."""
    with tempfile.TemporaryDirectory(prefix="fluss-declarative-") as name:
        folder = Path(name)
        with fluss.embedded(folder / "data") as cluster, fluss.connect(cluster.bootstrap_servers) as db:
            create_tables(db)
            project = lay_out(folder, cluster.bootstrap_servers)
            for number, orders in enumerate(
                ([(1, "ada", 9.5, True), (2, "bob", 3.0, False)], [(3, "ada", 7.25, True)])
            ):
                db.append("shop.orders", [dict(zip(ORDERS.names, order, strict=True)) for order in orders])
                print(f"run {number + 1}", flush=True)
                run_pipeline(project)
                show(db)


if __name__ == "__main__":
    main()
