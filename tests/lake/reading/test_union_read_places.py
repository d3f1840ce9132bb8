"""Lakes in an object store, and partitions that expire by themselves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import fluss
from fluss import col
from fluss.errors import ErrorCode, FlussError
from fluss.lake.tiering.options import TieringOptions
from tests.support.lake.tiered_tables import PEOPLE, REGIONAL, LakeTable, Rows, person
from tests.support.lake.union_reads import check_reads, ordered, planned, read_plan, rows_of
from tests.support.peers.object_store import ObjectStore
from tools.waiting import wait_until

SECRETS = {"s3.access-key-id": "key", "s3.secret-access-key": "secret of the store"}
DAYS = ("20200101", "20200102")


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[fluss.Database]:
    config = {"auto-partition.check.interval": "100ms", "lake.tiering.check-interval": "100 ms"}
    with (
        fluss.embedded(tmp_path_factory.mktemp("server") / "data", config=config) as cluster,
        fluss.connect(cluster.bootstrap_servers) as db,
    ):
        yield db


def expired(db: fluss.Database, rows: Rows, **options: list[str]) -> LakeTable:
    """A table whose partitions expired from Fluss after a round."""
    properties = {
        "table.auto-partition.enabled": "true",
        "table.auto-partition.num-precreate": "0",
        "table.auto-partition.num-retention": "-1",
    }
    table = LakeTable(db, REGIONAL, partitions=DAYS, properties=properties, **options)  # type: ignore[arg-type]
    (db.upsert if options else db.append)(table.name, rows)
    db.alter_table(table.name, set_properties={"table.auto-partition.num-retention": "1"})
    table.tier()
    wait_until(lambda: not db.partitions(table.name), "all partitions have expired")
    return table


def test_log_partitions_that_expired(db: fluss.Database) -> None:
    rows = [person(n, region=DAYS[n % 2]) for n in range(20)]
    table = expired(db, rows)
    check_reads(table, rows)
    assert ordered(db.scan(table.name).to_pylist()) == ordered(rows)
    assert len(rows_of(table, where=col("region") == DAYS[0])) == 10


def test_key_partitions_that_expired(db: fluss.Database) -> None:
    rows = [person(n, region=DAYS[n % 2]) for n in range(20)]
    table = expired(db, rows, primary_keys=["region", "id"])
    check_reads(table, rows)
    assert db.lookup(table.name, (DAYS[0], 4)) == person(4, region=DAYS[0])
    assert db.lookup(table.name, (DAYS[0], 5)) is None
    assert rows_of(table, union=False) == []


def test_a_lake_in_an_object_store(tmp_path: Path) -> None:
    with ObjectStore() as store:
        store.objects["lake/"] = b""
        settings = {
            "warehouse": "s3://lake/warehouse",
            "s3.endpoint": store.endpoint,
            "s3.region": "us-east-1",
            "py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO",
            **SECRETS,
        }
        config = {f"datalake.iceberg.{key}": value for key, value in settings.items()}
        with (
            fluss.embedded(tmp_path / "data", config=config) as cluster,
            fluss.connect(cluster.bootstrap_servers, lake_properties=SECRETS) as db,
        ):
            assert "secret of the store" not in repr(db.connection._session.config)
            table = LakeTable(db, PEOPLE, primary_keys=["id"])
            assert "secret of the store" not in str(table.properties)
            db.upsert(table.name, [person(n) for n in range(20)])
            table.tier(TieringOptions(cores=1, lake_overrides=SECRETS))
            db.upsert(table.name, person(3, name="tail"))
            check_reads(table, [person(n, name="tail" if n == 3 else f"n{n}") for n in range(20)])
            plan = planned(table)
            for path in [path for path in store.objects if path.endswith(".parquet")]:
                del store.objects[path]
            with pytest.raises(FlussError, match="was removed after the read was planned") as caught:
                read_plan(table, plan)
            assert caught.value.error_code == ErrorCode.LAKE_SNAPSHOT_NOT_EXIST


def test_properties_of_the_lake_are_a_dict_of_strings() -> None:
    config = fluss.Config({"lake.properties": SECRETS})
    assert fluss.Config({"lake.properties": config.lake_properties}) == config
    for wrong in ("s3.region", {"s3.region": 1}, ["s3.region"], "[1]"):
        with pytest.raises(FlussError, match=r"lake\.properties must be a dict of str to str"):
            fluss.Config({"lake.properties": wrong})
