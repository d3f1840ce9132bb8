"""`TableUpsert`: the builder of upsert writers, which is also a writer itself.

Documents of different releases write to `table.new_upsert()` directly or to `table.new_upsert().create_writer()`; both
work. A builder becomes a writer of its own with its first write, and each `create_writer()` makes another one.
"""

from __future__ import annotations

from collections.abc import Sequence

from fluss.client.metadata import ClientTable
from fluss.client.session import Session
from fluss.client.writer.kv_rows import named_targets, target_positions
from fluss.client.writer.upsert_writer import UpsertWriter


class TableUpsert(UpsertWriter):
    """Builder for an `UpsertWriter`; made by `table.new_upsert()`."""

    def _check_columns(self) -> None:
        """Left to `create_writer()` or the first write, as in pyfluss: until then the columns can still be changed."""

    def partial_update_by_name(self, columns: Sequence[str] | None) -> TableUpsert:
        """A builder for writers of only these columns, the primary key among them; None means all columns.

        Rows are dicts of these columns, or lists or tuples in their order; other columns keep their values.
        """
        targets = None if columns is None else named_targets(self._table, columns)
        return TableUpsert(self._session, self._table, targets)

    def partial_update_by_index(self, column_indices: Sequence[int] | None) -> TableUpsert:
        """The same, by position."""
        targets = None if column_indices is None else target_positions(self._table, column_indices)
        return TableUpsert(self._session, self._table, targets)

    def create_writer(self) -> UpsertWriter:
        """A writer that sends rows to the table."""
        return UpsertWriter(self._session, self._table, self._targets)


def new_upsert(session: Session, table: ClientTable, columns: Sequence[str] | None) -> TableUpsert:
    """A builder; with columns, one whose columns were checked."""
    builder = TableUpsert(session, table)
    if columns is None:
        return builder
    builder.partial_update_by_name(columns).create_writer()
    return builder.partial_update_by_name(columns)
