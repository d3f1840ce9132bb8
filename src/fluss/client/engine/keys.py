"""Keys of rows: read from values, compared, folded to the last row of each, divided into ranges."""

from __future__ import annotations

from fluss.client.keys.lookup_keys import KeyReader, Place, table_key_plan
from fluss.client.state.changed_keys import ChangedKeys
from fluss.client.state.changelog_state import last_of_each, newest_images
from fluss.client.state.key_fold import KeyFold
from fluss.client.state.key_ranges import ALL_KEYS, KeyRange
from fluss.client.state.table_keys import TableKeys

__all__ = [
    "ALL_KEYS",
    "ChangedKeys",
    "KeyFold",
    "KeyRange",
    "KeyReader",
    "Place",
    "TableKeys",
    "last_of_each",
    "newest_images",
    "table_key_plan",
]
