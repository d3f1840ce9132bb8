"""The check that is only possible after conversion: rows that are too large to send.

A large write is sent in chunks, one after the other. All of its rows are checked before the first chunk is sent, so
that a write that is refused leaves nothing behind. A write of a single chunk succeeds or fails as a whole anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa

from fluss.client.send.log_encoding import BatchEncoder

# The largest factor by which a row grows from Arrow's memory to a batch: bits in lists become bytes in rows.
MAX_GROWTH, MAX_NESTED_GROWTH = 2, 8
# The size of headers, and what each column adds to them.
BATCH_OVERHEAD_BYTES, COLUMN_OVERHEAD_BYTES = 512, 256


class WholeCheck:
    """Checks the batches of one table. `parts` is the encoder's input for a row; `one_chunk_bytes` is one chunk."""

    def __init__(
        self, encoder: BatchEncoder, parts: Callable[[pa.RecordBatch], Iterable[pa.RecordBatch]], one_chunk_bytes: int
    ) -> None:
        self._encoder = encoder
        self._parts = parts
        self._one_chunk_bytes = one_chunk_bytes

    def __call__(self, batch: pa.RecordBatch, *, is_all: bool) -> None:
        """Raise for a conforming batch that would be refused later; `is_all` if the call has no other one."""
        # Try the size of the whole buffers first: that of a slice needs a pass over all columns.
        if is_all and (batch.get_total_buffer_size() <= self._one_chunk_bytes or batch.nbytes <= self._one_chunk_bytes):
            return
        for row in _large_rows(batch, self._harmless_bytes(batch.schema.types)):
            for part in self._parts(row):
                for _ in self._encoder.encode_parts(part):
                    pass

    def _harmless_bytes(self, types: list[pa.DataType]) -> int:
        """The size up to which any row fits into a request, whatever its batch adds."""
        growth = MAX_NESTED_GROWTH if any(map(pa.types.is_nested, types)) else MAX_GROWTH
        overhead = BATCH_OVERHEAD_BYTES + COLUMN_OVERHEAD_BYTES * len(types)
        return max(0, self._encoder.max_batch_bytes - overhead) // growth


def _large_rows(batch: pa.RecordBatch, harmless_bytes: int) -> Iterator[pa.RecordBatch]:
    """Every larger row, found by bisection."""
    if batch.nbytes <= harmless_bytes or not batch.num_rows:
        return
    if batch.num_rows == 1:
        yield batch
        return
    half = batch.num_rows // 2
    yield from _large_rows(batch.slice(0, half), harmless_bytes)
    yield from _large_rows(batch.slice(half), harmless_bytes)
