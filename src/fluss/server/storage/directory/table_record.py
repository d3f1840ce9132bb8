"""`table.json` in the directory of a table: a copy of its catalog entry, in case the catalog is lost.

The coordinator writes it after each change of the table, once the change is durable in the catalog. `change` is the
catalog's change number at that time, so a record is never ahead of the catalog it was copied from, and a catalog that
is behind a record is older than the table. `catalog_id` distinguishes unrelated catalogs. Readers get None for a
record that is missing or damaged: a table of an earlier version has none, and a power loss may tear one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fluss.model.formats import refuse_newer
from fluss.server.storage.json_checksum import CHECKSUM_KEY, check_json, json_checksum

if TYPE_CHECKING:
    from fluss.model.json_types import JsonObject

RECORD_FILE_NAME = "table.json"
RECORD_VERSION = 1


@dataclass(frozen=True)
class TableRecord:
    """A table as stored in the catalog. Descriptors and schemas are the catalog's own JSON strings."""

    catalog_id: int
    change: int
    database_name: str
    database_descriptor: str
    table_name: str
    table_id: int
    descriptor: str
    schema_id: int
    schemas: Mapping[int, str]
    created_time: int
    modified_time: int
    partitions: Mapping[int, str]

    @property
    def name(self) -> str:
        """The qualified name, `database.table`."""
        return f"{self.database_name}.{self.table_name}"


def record_to_json(record: TableRecord) -> bytes:
    """Encode a record as the content of `table.json`."""
    node: JsonObject = {
        "version": RECORD_VERSION,
        **vars(record),
        "schemas": {str(number): text for number, text in record.schemas.items()},
        "partitions": {str(number): name for number, name in record.partitions.items()},
    }
    node[CHECKSUM_KEY] = json_checksum(node)
    return json.dumps(node, indent=1).encode()


def read_record(directory: Path) -> TableRecord | None:
    """The record in the directory of a table; None if it is missing or damaged."""
    path = directory / RECORD_FILE_NAME
    try:
        node = json.loads(path.read_bytes())
        refuse_newer(f"table record {path}", node["version"], RECORD_VERSION)
        check_json(node)
        del node["version"], node[CHECKSUM_KEY]
        return TableRecord(
            **{
                **node,
                "schemas": {int(number): text for number, text in node["schemas"].items()},
                "partitions": {int(number): name for number, name in node["partitions"].items()},
            }
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
