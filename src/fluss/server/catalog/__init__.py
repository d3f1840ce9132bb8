"""The metadata of a server: databases, tables, partitions and all other state that is not row data."""

from fluss.server.catalog.catalog import Catalog
from fluss.server.catalog.metadata_entries import DatabaseEntry, PartitionEntry, TableEntry
from fluss.server.catalog.store import CatalogStore

__all__ = ["Catalog", "CatalogStore", "DatabaseEntry", "PartitionEntry", "TableEntry"]
