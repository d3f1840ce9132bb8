"""Columns and rows of record batches that have all columns of a table. Immutable, used by any thread."""

from __future__ import annotations

import pyarrow as pa

from fluss.client.decode.materialize import valid_mask
from fluss.client.decode.scan_plan import ScanPlan
from fluss.client.filter.filters import RowFilter
from fluss.client.net.metadata import ClientTable
from fluss.codec.arrow.types import to_arrow_schema


class Selection:
    """The columns and rows of a batch that a plan keeps."""

    def __init__(self, table: ClientTable, plan: ScanPlan) -> None:
        columns = table.schema.columns
        self._projection = tuple(range(len(columns))) if plan.projection is None else plan.projection
        self._filter = None if plan.predicate is None else RowFilter(plan.predicate, table.schema)
        self._position_of_id = {column.column_id: index for index, column in enumerate(columns)}
        arrow_schema = to_arrow_schema(table.schema)
        self.schema = pa.schema([arrow_schema.field(index) for index in self._projection])

    @property
    def keeps_all_rows(self) -> bool:
        """True if there is no filter."""
        return self._filter is None

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The wanted columns of the wanted rows."""
        columns = [batch.column(index) for index in self._projection]
        chosen = pa.RecordBatch.from_arrays(columns, schema=self.schema)
        if self._filter is None:
            return chosen
        mask = valid_mask(self._filter.mask(lambda column_id: batch.column(self._position_of_id[column_id])))
        return chosen if mask.true_count == batch.num_rows else chosen.filter(mask)
