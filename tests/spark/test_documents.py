"""The code about Spark in the documents runs as written; only addresses and folders are replaced."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import fluss
import fluss.spark
from tests.docs.documents import CHECKOUT, DOCUMENTED_ADDRESS, python_blocks
from tests.support.servers.targets import running_target
from tests.support.spark.stream_queries import ended

SETTING = "spark.sql.fluss.bootstrap.servers"


@pytest.fixture
def address(spark: SparkSession) -> Iterator[str]:
    """The server and the session of the other tests, as if they were new; the session is left without the address."""
    for view in spark.catalog.listTables():
        if view.isTemporary:
            spark.catalog.dropTempView(view.name)
    address = running_target("standalone").bootstrap_servers
    options = {"bootstrap.servers": address}
    fluss.spark.drop_database(spark, "shop", ignore_if_not_exists=True, cascade=True, options=options)
    yield address
    spark.conf.unset(SETTING)


@pytest.fixture
def db(address: str) -> Iterator[fluss.Database]:
    with fluss.connect(address) as db:
        yield db


def run_blocks(document: str, heading: str | None, address: str, folder: Path) -> dict[str, Any]:
    """Run the code of a document, or of one section; return the names that it defines."""
    text = (CHECKOUT / document).read_text(encoding="utf-8")
    blocks = [block.code for block in python_blocks(text) if heading in (None, block.heading)]
    assert blocks, f"{document} has no code under {heading}"
    program = ModuleType("program")
    sys.modules["program"] = program  # functions that go to workers are looked up there
    try:
        code = "\n".join(blocks).replace(DOCUMENTED_ADDRESS, address).replace('"checkpoints', f'"{folder}/checkpoints')
        exec(code, program.__dict__)
    finally:
        del sys.modules["program"]
    return program.__dict__


def test_the_readme(
    address: str, db: fluss.Database, spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for table in ("orders", "totals"):
        db.drop_table(table, ignore_if_not_exists=True)
    db.create_table("orders", pa.schema([("who", pa.string()), ("amount", pa.float64())]))
    db.append("orders", [{"who": "ada", "amount": 2.5}, {"who": "bob", "amount": 4.0}])
    names = run_blocks("README.md", "Spark in a minute", address, tmp_path)
    assert names["spark"] is spark
    assert f"\n```\n{capsys.readouterr().out.strip()}\n```\n" in (CHECKOUT / "README.md").read_text(encoding="utf-8")


def test_the_page_about_spark(address: str, db: fluss.Database, spark: SparkSession, tmp_path: Path) -> None:
    names = run_blocks("docs/spark.md", None, address, tmp_path)
    assert names["spark"] is spark
    ended(names["query"])
    assert db.to_arrow("shop.orders").num_rows == 5
    assert sorted(row["id"] for row in db.to_arrow("shop.dear").to_pylist()) == [1, 2]
