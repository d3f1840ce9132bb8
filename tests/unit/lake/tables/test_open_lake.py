"""The lake of a table from the properties that the server shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from fluss.errors import FlussError
from fluss.lake.tables.iceberg.settings import catalog_properties
from fluss.lake.tables.open_lake import lake_of, lake_properties_of, open_lake

FORMAT = {"table.datalake.enabled": "true", "table.datalake.format": "iceberg"}


def shown(directory: Path) -> dict[str, str]:
    catalog = catalog_properties({}, directory)
    return FORMAT | {f"table.datalake.iceberg.{key}": value for key, value in catalog.items()}


def test_catalog_properties_lose_their_prefix() -> None:
    properties = FORMAT | {
        "table.datalake.freshness": "1 min",
        "table.datalake.iceberg.uri": "http://lake",
        "table.datalake.paimon.uri": "another format's",
    }
    assert lake_properties_of(properties) == ("iceberg", {"uri": "http://lake"})


def test_the_lake_of_the_server_opens_where_it_is(tmp_path: Path) -> None:
    server = open_lake("iceberg", {}, tmp_path)
    server.catalog.create_namespace("shop")  # type: ignore[attr-defined]
    lake = lake_of(shown(tmp_path))
    assert lake.catalog.list_namespaces() == [("shop",)]  # type: ignore[attr-defined]
    lake.close()
    server.close()


def test_a_catalog_file_of_another_machine_is_not_created(tmp_path: Path) -> None:
    with pytest.raises(FlussError, match="not on this machine") as caught:
        lake_of(shown(tmp_path))
    assert caught.value.error_code == 40
    assert not (tmp_path / "lake").exists()


def test_overrides_win(tmp_path: Path) -> None:
    open_lake("iceberg", {}, tmp_path).close()
    here = catalog_properties({}, tmp_path)["uri"]
    lake = lake_of(shown(tmp_path / "elsewhere"), {"uri": here})
    assert lake.catalog.properties["uri"] == here  # type: ignore[attr-defined]
    lake.close()


def test_a_table_without_a_lake_is_a_clear_error() -> None:
    with pytest.raises(FlussError, match=r"table\.datalake\.enabled=true") as caught:
        lake_of({"table.replication.factor": "1"})
    assert caught.value.error_code == 40
