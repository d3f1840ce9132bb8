"""One lake, or one server with its lake, for all tests of a module: every test has its own tables in it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import fluss
from fluss.lake.tables.iceberg.tables import IcebergFormat
from tests.support.lake.tables import local_lake


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IcebergFormat]:
    lake = local_lake(tmp_path_factory.mktemp("data with a blank"))
    yield lake
    lake.close()


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[fluss.Database]:
    with (
        fluss.embedded(tmp_path_factory.mktemp("server") / "data") as cluster,
        fluss.connect(cluster.bootstrap_servers) as db,
    ):
        yield db
