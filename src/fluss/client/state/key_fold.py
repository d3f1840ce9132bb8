"""The last row of every key in a part of a changelog, in bounded memory.

States: in memory -> spilled. Rows are merged by key in memory until they exceed `max_memory_bytes`. Then everything
goes to `SHARES` files by a hash of the key, and from then on changes are only written, with deletions marked. At the
end each file is merged on its own, so memory is limited to one share of the rows.

A `KeyFold` is used by one thread.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from fluss.client.decode.log_rows import LogRows
from fluss.client.net.metadata import ClientTable
from fluss.client.state.changelog_state import BucketMerge, newest_images
from fluss.client.state.table_keys import TableKeys
from fluss.codec.arrow.types import to_arrow_schema

if TYPE_CHECKING:
    from fluss.codec.rows.varint import Bools

MAX_MEMORY_BYTES = 256 * 1024 * 1024
SHARES = 32
# Rows that are collected before they are distributed to the files: small batches would mean small writes.
SPILL_ROWS = 100_000
_DELETED = "__deleted"


class KeyFold:
    """Folds the changes of a bucket by key: add them in order, then take `batches` once; `close` removes the files."""

    def __init__(self, table: ClientTable, *, max_memory_bytes: int | None = None) -> None:
        self._table = table
        self._keys = TableKeys(table)
        self._merge = BucketMerge(table)
        self._max_memory_bytes = MAX_MEMORY_BYTES if max_memory_bytes is None else max_memory_bytes
        self._directory: str | None = None
        self._writers: list[pa.ipc.RecordBatchStreamWriter] = []
        schema = to_arrow_schema(table.schema)
        self._spill_schema = schema.append(pa.field(_DELETED, pa.bool_(), nullable=False))
        self._unspilled: list[pa.RecordBatch] = []
        self._unspilled_rows = 0

    @property
    def is_spilled(self) -> bool:
        """True if rows are on disk."""
        return self._directory is not None

    def add(self, rows: LogRows) -> None:
        """Add the next changes; rows have all columns of the table."""
        self.add_batch(*newest_images(rows))

    def add_batch(self, batch: pa.RecordBatch, deleted: Bools) -> None:
        """Add the next changes as rows, with a NumPy mask of deletions."""
        if self.is_spilled:
            self._spill(batch, deleted)
            return
        self._merge.add_batch(batch, deleted)
        if self._merge.size_bytes > self._max_memory_bytes:
            merged = self._merge.merge()
            assert merged is not None
            if self._merge.size_bytes > self._max_memory_bytes // 2:
                self._begin_to_spill(merged)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows after all changes, in no order."""
        if not self.is_spilled:
            merged = self._merge.merge()
            if merged is not None and merged.num_rows:
                yield merged
            return
        self._write_out()
        self._close_writers()
        for share in range(SHARES):
            merged = self._merged_share(self._path(share))
            if merged is not None and merged.num_rows:
                yield merged

    def close(self) -> None:
        """Remove the files."""
        self._close_writers()
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None

    # ---- files ----

    def _begin_to_spill(self, merged: pa.RecordBatch) -> None:
        self._directory = tempfile.mkdtemp(prefix="fluss-fold-")
        self._writers = [pa.ipc.new_stream(self._path(share), self._spill_schema) for share in range(SHARES)]
        self._merge = BucketMerge(self._table)
        for start in range(0, merged.num_rows, SPILL_ROWS):
            part = merged.slice(start, SPILL_ROWS)
            self._spill(part, np.zeros(part.num_rows, np.bool_))

    def _path(self, share: int) -> str:
        assert self._directory is not None
        return os.path.join(self._directory, f"{share}.arrow")

    def _spill(self, batch: pa.RecordBatch, deleted: Bools) -> None:
        columns = [*batch.columns, pa.array(deleted)]
        self._unspilled.append(pa.RecordBatch.from_arrays(columns, schema=self._spill_schema))
        self._unspilled_rows += batch.num_rows
        if self._unspilled_rows >= SPILL_ROWS:
            self._write_out()

    def _write_out(self) -> None:
        """Write to the files; rows of one key keep their order in one file, since the sort by share is stable."""
        for batch in pa.Table.from_batches(self._unspilled, self._spill_schema).combine_chunks().to_batches():
            shares = self._keys.shares(batch, SHARES)
            order = np.argsort(shares, kind="stable")
            sorted_batch = batch.take(pa.array(order))
            bounds = np.searchsorted(shares[order], np.arange(SHARES + 1))
            for share, (start, end) in enumerate(zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)):
                if end > start:
                    self._writers[share].write_batch(sorted_batch.slice(start, end - start))
        self._unspilled, self._unspilled_rows = [], 0

    def _merged_share(self, path: str) -> pa.RecordBatch | None:
        merge = BucketMerge(self._table)
        whole_schema = pa.schema(list(self._spill_schema)[:-1])
        with pa.memory_map(path) as source, pa.ipc.open_stream(source) as reader:
            for batch in reader:  # in the order of the changes
                deleted = batch.column(batch.num_columns - 1).to_numpy(zero_copy_only=False)
                merge.add_batch(pa.RecordBatch.from_arrays(batch.columns[:-1], schema=whole_schema), deleted)
        os.unlink(path)
        return merge.merge()

    def _close_writers(self) -> None:
        for writer in self._writers:
            writer.close()
        self._writers = []
