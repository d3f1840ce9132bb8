"""A lakehouse from scratch: `python examples/lakehouse.py`, with a server inside; `--spark` tiers with Spark.

Orders arrive in a log table, customers in a primary-key table; both have a lake. A tiering service moves the rows to
Iceberg files. Then more orders arrive, and a customer moves. duckdb, which knows nothing of this project, queries the
lake; `db.to_arrow` sees lake and live rows as one table.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog

import fluss

LAKE = {"table.datalake.enabled": "true", "table.datalake.freshness": "1 min"}
ORDERS = pa.schema([("id", pa.int64()), ("customer", pa.string()), ("amount", pa.float64())])
CUSTOMERS = pa.schema([pa.field("name", pa.string(), nullable=False), ("city", pa.string())])
REVENUE = """
    SELECT city, count(*) AS orders, sum(amount) AS revenue
    FROM orders JOIN customers ON customer = name GROUP BY city ORDER BY city
"""


def create_tables(db: fluss.Database) -> None:
    """Create two tables with a lake: the server creates the Iceberg tables, too."""
    db.create_database("shop")
    db.create_table("shop.orders", ORDERS, bucket_count=2, properties=LAKE)
    db.create_table("shop.customers", CUSTOMERS, primary_keys=["name"], properties=LAKE)
    db.upsert("shop.customers", [{"name": "ada", "city": "Paris"}, {"name": "bob", "city": "Oslo"}])


def order(db: fluss.Database, first: int, count: int) -> None:
    """Append `count` orders of ada and bob in turn, with ids from `first` on."""
    ids = range(first, first + count)
    db.append("shop.orders", [{"id": n, "customer": ("ada", "bob")[n % 2], "amount": n / 4} for n in ids])


def tier(address: str, engine: str) -> None:
    """Run one pass of the tiering service; without `--once` it would keep running and tier due tables."""
    command = [sys.executable, "-m", "fluss.cli.main", "tier", "--bootstrap", address, "--once", engine, "--quiet"]
    subprocess.run(command, check=True)


def iceberg_catalog(data: Path) -> Catalog:
    """Open the lake like any other program; "fluss" is the name of its SQL catalog."""
    return load_catalog("fluss", type="sql", uri=f"sqlite:///{data}/lake/catalog.sqlite")


def ask_the_lake(data: Path) -> None:
    """Query the Iceberg tables with duckdb."""
    with iceberg_catalog(data) as catalog:
        connection = catalog.load_table("shop.orders").scan().to_duckdb("orders")
        catalog.load_table("shop.customers").scan().to_duckdb("customers", connection)
    for city, orders, revenue in connection.sql(REVENUE).fetchall():
        print(f"  {city}: {orders} orders, {revenue:.2f}")


def main() -> None:
    """Run the whole example: server, tables, rows, tiering, queries."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spark", action="store_const", const="--spark", default="--local", dest="engine")
    engine = parser.parse_args().engine
    with tempfile.TemporaryDirectory(prefix="fluss-lakehouse-") as folder:
        data = Path(folder, "data")
        with fluss.embedded(data) as cluster, fluss.connect(cluster.bootstrap_servers) as db:
            create_tables(db)
            order(db, 0, 1000)
            tier(cluster.bootstrap_servers, engine)
            print("in the lake, by duckdb:")
            ask_the_lake(data)
            order(db, 1000, 10)
            db.upsert("shop.customers", [{"name": "bob", "city": "Rome"}])
            print(f"lake and log: {db.to_arrow('shop.orders').num_rows} orders")
            print(f"  of them in the lake: {db.to_arrow('shop.orders', read_optimized=True).num_rows}")
            print(f"  bob is in {db.lookup('shop.customers', 'bob')['city']}")
            tier(cluster.bootstrap_servers, engine)
            print("in the lake, after another round:")
            ask_the_lake(data)


if __name__ == "__main__":
    main()
