"""The metadata of a server: databases, tables, partitions and all other state that is not row data.

Imported by `config`, `apis`, `coordinator`, `tablet` and `process`. Start with
`catalog` (what a process knows) and `store` (how it is changed).
"""

from fluss.server.catalog.catalog import Catalog
from fluss.server.catalog.metadata_entries import DatabaseEntry, PartitionEntry, TableEntry
from fluss.server.catalog.store import CatalogStore

__all__ = ["Catalog", "CatalogStore", "DatabaseEntry", "PartitionEntry", "TableEntry"]
