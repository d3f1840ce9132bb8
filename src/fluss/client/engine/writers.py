"""The writers that a table's builders make, as types."""

from __future__ import annotations

from fluss.client.write.append_writer import AppendWriter
from fluss.client.write.upsert_writer import UpsertWriter

__all__ = ["AppendWriter", "UpsertWriter"]
