"""A warehouse in an object store and a REST catalog, by configuration alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from fluss.errors import ErrorCode, FlussError
from fluss.lake.tables.iceberg.tables import IcebergFormat
from fluss.lake.tables.open_lake import open_lake
from tests.support.lake.maintenance import maintenance_of
from tests.support.lake.tables import PEOPLE, TABLE_ID, made, people, spec_of
from tests.support.peers.object_store import ObjectStore
from tests.support.peers.rest_catalog import RestCatalogServer


def test_a_warehouse_in_an_object_store(tmp_path: Path) -> None:
    with ObjectStore() as store:
        properties = {
            "warehouse": "s3://lake/warehouse",
            "s3.endpoint": store.endpoint,
            "s3.access-key-id": "key",
            "s3.secret-access-key": "secret of the store",
            "s3.region": "us-east-1",
            "py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO",
        }
        store.objects["lake/"] = b""
        lake = open_lake("iceberg", properties, tmp_path)
        assert isinstance(lake, IcebergFormat)
        table_writer = made(lake, spec_of(PEOPLE))
        table_writer.commit(table_writer.write(people(0, 3)))
        lost = table_writer.write(people(3, 1), start=3)
        assert table_writer.rows() == people(0, 3)
        assert table_writer.table.unreferenced_files(10**14) == [lost.added[0].file_path]
        table_writer.table.target().discard([lost])
        assert table_writer.table.unreferenced_files(10**14) == []
        assert len(table_writer.table.committed_offsets(TABLE_ID)) == 1
        assert any(key.startswith("lake/warehouse/db/") and key.endswith(".parquet") for key in store.objects)
        assert "secret of the store" not in repr(table_writer.table.target())

        # Maintenance works there, too.
        for number in range(3, 8):
            table_writer.commit(table_writer.write(people(number, 1), start=number))
        assert maintenance_of(table_writer).compact().files_after == 1
        assert maintenance_of(table_writer, days_later=2, min_snapshots=1).expire().snapshot_count == 6
        table_writer.write(people(900, 1), start=8)
        assert maintenance_of(table_writer, days_later=2).remove_orphans().file_count == 1
        table_writer.table = table_writer.table.refreshed()
        assert table_writer.rows() == people(0, 8)
        assert len([key for key in store.objects if key.endswith(".parquet")]) == 1


def test_a_rest_catalog(tmp_path: Path) -> None:
    """Tables are created, tiered by two services, maintained and read through it; its file has them all."""
    with RestCatalogServer(tmp_path) as rest:
        properties = {"type": "rest", "uri": rest.uri}
        lake = open_lake("iceberg", properties, tmp_path / "unused")
        assert isinstance(lake, IcebergFormat)
        table_writer = made(lake, spec_of(PEOPLE))
        table_writer.commit(table_writer.write(people(0, 3)))
        other = open_lake("iceberg", properties, tmp_path / "unused").load(table_writer.spec.path)
        for number in range(3, 8):
            table_writer.commit(table_writer.write(people(number, 1), start=number))
        with pytest.raises(FlussError, match="another commit came first"):
            other.commit(TABLE_ID, [table_writer.write(people(3, 1), start=3)])
        assert table_writer.rows() == people(0, 8)
        assert maintenance_of(table_writer).compact().files_after == 1
        assert maintenance_of(table_writer, days_later=2, min_snapshots=1).expire().snapshot_count == 6
        table_writer.table = table_writer.table.refreshed()
        assert table_writer.rows() == people(0, 8)
        behind = rest.catalog.load_table(rest.catalog.list_tables("db")[0])
        assert behind.scan().to_arrow().num_rows == 8
        assert any(line.startswith("POST /v1/namespaces/db/tables/") for line in rest.requests)
        assert not (tmp_path / "unused").exists(), "nothing of the default catalog is made"


def test_a_catalog_that_cannot_be_reached_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(FlussError, match=r"the Iceberg catalog 'http://127\.0\.0\.1:1/' cannot be opened") as caught:
        open_lake("iceberg", {"type": "rest", "uri": "http://127.0.0.1:1/"}, tmp_path)
    assert caught.value.error_code == ErrorCode.LAKE_STORAGE_NOT_CONFIGURED_EXCEPTION
