"""`TableUpsert`: the builder of upsert writers, which is also a writer itself.

Depending on the release, the documents of Apache Fluss write to `table.new_upsert()` directly or to
`table.new_upsert().create_writer()`; both work. A builder becomes a writer of its own with its first write, and each
`create_writer()` makes another one. As in pyfluss, `create_writer()` refuses whole rows of a table with a column whose
values the server assigns; a write to the builder itself omits that column.
"""

from __future__ import annotations

from collections.abc import Sequence

from fluss.client.fitting import ExtraDigits
from fluss.client.net.metadata import ClientTable
from fluss.client.net.session import Session
from fluss.client.write.kv_rows import named_targets, target_positions
from fluss.client.write.upsert_writer import UpsertWriter
from fluss.errors import FlussError


class TableUpsert(UpsertWriter):
    """Builder for an `UpsertWriter`; made by `table.new_upsert()`."""

    def __init__(self, session: Session, table: ClientTable, targets: tuple[int, ...] | None = None) -> None:
        self._writes_whole_rows = targets is None
        super().__init__(session, table, targets)

    def _check_columns(self) -> None:
        """Check nothing here: as in pyfluss, `create_writer()` or the first write checks the columns."""

    def partial_update_by_name(self, columns: Sequence[str] | None) -> TableUpsert:
        """A builder for writers of only these columns, the primary key among them; None means all columns.

        Rows are dicts of these columns, or lists or tuples in their order; other columns keep their values.
        """
        targets = None if columns is None else named_targets(self._table, columns)
        return TableUpsert(self._session, self._table, targets)

    def partial_update_by_index(
        self, indices: Sequence[int] | None = None, *, column_indices: Sequence[int] | None = None
    ) -> TableUpsert:
        """`partial_update_by_name` by position. Documents call the parameter `indices`, pyfluss `column_indices`."""
        if indices is not None and column_indices is not None:
            raise FlussError("indices and column_indices are the same parameter; pass only one of them")
        positions = column_indices if indices is None else indices
        targets = None if positions is None else target_positions(self._table, positions)
        return TableUpsert(self._session, self._table, targets)

    def create_writer(self, *, on_extra_digits: ExtraDigits = "error") -> UpsertWriter:
        """A writer that sends rows to the table.

        A table with an auto-increment column has no writer of whole rows: name the columns to write.

        Digits of a second or of a decimal that a column cannot hold are refused; `on_extra_digits="truncate"` cuts them
        off, rounding towards the past and the smaller number. Digits of the primary key are never cut off: two rows
        could become one.

        >>> writer = table.new_upsert().partial_update_by_name(["name", "region"]).create_writer()
        >>> writer = table.new_upsert().create_writer(on_extra_digits="truncate")   # doctest: +SKIP
        """
        automatic = self._table.schema.auto_increment_column
        if self._writes_whole_rows and automatic is not None:
            raise FlussError(
                f"table {self._table.path}: the server assigns the values of auto-increment column {automatic!r}, "
                "so whole rows cannot be written; name the other columns with partial_update_by_name([...])"
            )
        return self._new_writer(on_extra_digits)

    def _new_writer(self, on_extra_digits: ExtraDigits) -> UpsertWriter:
        return UpsertWriter(self._session, self._table, self._targets, on_extra_digits)


def lenient_writer(builder: TableUpsert, on_extra_digits: ExtraDigits) -> UpsertWriter:
    """A writer for `fluss.connect`, whose rows omit an auto-increment column."""
    return builder._new_writer(on_extra_digits)


def new_upsert(session: Session, table: ClientTable, columns: Sequence[str] | None) -> TableUpsert:
    """A builder of upsert writers; if `columns` are given, they are checked now."""
    builder = TableUpsert(session, table)
    if columns is None:
        return builder
    builder.partial_update_by_name(columns).create_writer()
    return builder.partial_update_by_name(columns)
