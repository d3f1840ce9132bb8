"""A program without the packages of the lake: it reads what Fluss still has; other reads name what to install."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

import fluss
from tests.support.lake.tiered_tables import REGIONAL, LakeTable, person
from tests.support.lake.union_reads import EXPIRING, SERVER, drop_partition, expire
from tools.waiting import patience

# A module that is None in `sys.modules` cannot be imported, as if it were not installed.
PROGRAM = """
import sys
sys.modules["pyiceberg"] = None
import fluss
table = sys.argv[2]
with fluss.connect(sys.argv[1]) as db:
    for expression in sys.argv[3:]:
        try:
            print(eval(expression))
        except fluss.FlussError as error:
            print(error.error_code, error)
"""
INSTALL = "pip install 'flusspy[lake]'"


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[fluss.Database]:
    with (
        fluss.embedded(tmp_path_factory.mktemp("server") / "data", config=SERVER) as cluster,
        fluss.connect(cluster.bootstrap_servers) as db,
    ):
        yield db


def said(table: LakeTable, *expressions: str) -> list[str]:
    """The output of a program without pyiceberg for expressions with `db` and the name `table`."""
    address = table.db.connection._session.config.bootstrap_servers
    command = [sys.executable, "-c", PROGRAM, address, table.name, *expressions]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patience(120))
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.all
def test_a_table_that_is_whole_in_fluss_needs_nothing(db: fluss.Database) -> None:
    log = LakeTable(db)
    db.append(log.name, [person(n) for n in range(10)])
    log.tier()
    db.append(log.name, [person(n) for n in range(10, 12)])
    whole = ("db.to_arrow(table).num_rows", "db.to_arrow(table, union=True).num_rows")
    assert said(log, *whole, "db.scan(table).num_rows") == ["12", "12", "12"]
    keys = LakeTable(db, REGIONAL, partitions=("eu",), primary_keys=["region", "id"])
    db.upsert(keys.name, [person(n, region="eu") for n in range(10)])
    keys.tier()
    *found, optimized = said(keys, *whole, "db.lookup(table, ('eu', 3))['id']", "db.to_arrow(table, read_optimized=1)")
    assert found == ["10", "10", "3"]
    assert INSTALL in optimized


def test_reads_that_need_the_lake_name_what_to_install(db: fluss.Database) -> None:
    keys = LakeTable(db, REGIONAL, partitions=("eu", "us"), primary_keys=["region", "id"])
    db.upsert(keys.name, [person(n, region=region) for n in range(10) for region in ("eu", "us")])
    keys.tier()
    drop_partition(keys, "us")
    needing = ("db.to_arrow(table)", "db.to_arrow(table, union=True)", "db.lookup(table, ('us', 1))")
    for expression, answer in zip(needing, said(keys, *needing), strict=True):
        assert answer.startswith("40 "), expression
        assert INSTALL in answer
    others = ("db.to_arrow(table, union=False).num_rows", "db.lookup(table, ('eu', 1))['id']")
    assert said(keys, *others) == ["10", "1"]


@pytest.mark.all
def test_reads_of_an_expired_log_name_what_to_install(db: fluss.Database) -> None:
    table = LakeTable(db, bucket_count=1, properties=EXPIRING)
    expire(table, lambda: db.append(table.name, [person(n, name="x" * 60) for n in range(50)]), 0)
    needing = ("db.to_arrow(table)", "db.scan(table)")
    for expression, answer in zip(needing, said(table, *needing), strict=True):
        assert answer.startswith("40 "), expression
        assert INSTALL in answer
