"""One lake for all tests of a module: every test has tables of its own in it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fluss.lake.tables.iceberg.tables import IcebergFormat
from tests.support.lake_tables import local_lake


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IcebergFormat]:
    lake = local_lake(tmp_path_factory.mktemp("data with a blank"))
    yield lake
    lake.close()
