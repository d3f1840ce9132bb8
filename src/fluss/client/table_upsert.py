"""`TableUpsert`: the builder of upsert writers, which is also a writer itself.

Documents of different releases write to `table.new_upsert()` directly or to `table.new_upsert().create_writer()`; both
work. A builder becomes a writer of its own with its first write, and each `create_writer()` makes another one.
"""

from __future__ import annotations

from collections.abc import Sequence

from fluss.client.metadata import ClientTable
from fluss.client.session import Session
from fluss.client.writer.kv_rows import check_target_positions, check_targets
from fluss.client.writer.upsert_writer import UpsertWriter


class TableUpsert(UpsertWriter):
    """Builder for an `UpsertWriter`; made by `table.new_upsert()`."""

    def __init__(self, session: Session, table: ClientTable, columns: Sequence[str] | None = None) -> None:
        super().__init__(session, table, None if columns is None else check_targets(table, columns))

    def partial_update_by_name(self, columns: Sequence[str] | None) -> TableUpsert:
        """A builder for writers of only these columns, the primary key among them; None means all columns."""
        return TableUpsert(self._session, self._table, columns)

    def partial_update_by_index(self, column_indices: Sequence[int] | None) -> TableUpsert:
        """The same, by position."""
        if column_indices is None:
            return TableUpsert(self._session, self._table)
        names = self._table.schema.column_names
        positions = check_target_positions(self._table, column_indices)
        return TableUpsert(self._session, self._table, [names[position] for position in positions])

    def create_writer(self) -> UpsertWriter:
        """A writer that sends rows to the table."""
        return UpsertWriter(self._session, self._table, self._targets)
