"""Servers that require a login: the options reach every process of Spark, and the password is never shown."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

import fluss
import fluss.spark
from tests.spark.conftest import Tables
from tests.support.spark.stream_queries import ended
from tools.servers.logins import USERS

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
WRONG_PASSWORD = "guessed-0815"


@pytest.fixture
def login(tables: Tables) -> dict[str, str]:
    """Options for the listener on which every connection must log in."""
    return {
        "bootstrap.servers": tables.target.sasl_bootstrap_servers,
        "client.security.protocol": "sasl",
        "client.security.sasl.username": "alice",
        "client.security.sasl.password": USERS["alice"],
    }


def test_everything_works_with_a_login(
    tables: Tables, login: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spark = tables.spark
    fluss.spark.create_table(spark, tables.path("log"), "id BIGINT, name STRING", options=login)
    tables.create("keyed", SCHEMA, primary_keys=["id"], bucket_count=2)
    tables.write(spark.range(100).selectExpr("id", "concat('n', id) name"), "log", login)
    assert len(tables.rows("log")) == 100
    frame = tables.read("log", login)
    assert frame.count() == 100
    assert sorted(row.id for row in frame.where("id >= 97").collect()) == [97, 98, 99]
    frame.explain(extended=True)
    assert USERS["alice"] not in capsys.readouterr().out
    writer = (
        tables.stream("log", login).writeStream.format("fluss").options(**login).option("table", tables.path("keyed"))
    )
    ended(writer.option("checkpointLocation", str(tmp_path / "sink")).trigger(availableNow=True).start())
    assert tables.read("keyed", login).count() == 100
    for file in (path for path in tmp_path.rglob("*") if path.is_file()):
        assert USERS["alice"].encode() not in file.read_bytes(), f"{file} has the password"


def test_a_wrong_password_is_reported_and_not_shown(tables: Tables, login: dict[str, str]) -> None:
    tables.create("t", SCHEMA)
    tables.db.append(tables.path("t"), [{"id": 1, "name": "a"}])
    rows = tables.read("t")
    wrong = {**login, "client.security.sasl.password": WRONG_PASSWORD}
    refused = f"{login['bootstrap.servers']} refused the login of 'alice': .* password is wrong"
    for act in (
        lambda: tables.read("t", wrong),
        lambda: tables.stream("t", wrong),
        lambda: tables.write(rows, "t", wrong),
    ):
        with pytest.raises(PySparkException, match=refused) as caught:
            act()
        assert WRONG_PASSWORD not in str(caught.value)
    assert tables.rows("t") == [{"id": 1, "name": "a"}]


def test_without_a_login_nothing_is_read(tables: Tables, login: dict[str, str]) -> None:
    """Otherwise the first test would prove nothing."""
    tables.create("t", SCHEMA)
    with pytest.raises(PySparkException, match="this listener needs a login"):
        tables.read("t", {"bootstrap.servers": login["bootstrap.servers"]})
