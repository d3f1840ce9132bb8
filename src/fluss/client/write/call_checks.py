"""What stops rows after they were converted: partitions that cannot exist, keys without bytes, rows too large to send.

A large write leaves in chunks, one after the other. So that a refused one has written nothing, all of its rows are
looked at before the first chunk leaves. A write of a single chunk leaves, or fails, as a whole by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa

from fluss.client.send.log_encoding import BatchEncoder
from fluss.client.write.routing import Router

# How much larger than in Arrow's memory a row may be in a batch, at most: bits in lists become bytes in rows.
MAX_GROWTH, MAX_NESTED_GROWTH = 2, 8
# Headers, and what each column adds to them.
BATCH_OVERHEAD_BYTES, COLUMN_OVERHEAD_BYTES = 512, 256


class WholeCheck:
    """For the batches of one table. `parts` gives what the encoder takes for a row; `one_chunk_bytes` leave at once."""

    def __init__(
        self, router: Router, encoder: BatchEncoder, parts: Callable[[Any], Iterable[Any]], one_chunk_bytes: int
    ) -> None:
        self._router = router
        self._encoder = encoder
        self._parts = parts
        self._one_chunk_bytes = one_chunk_bytes

    def __call__(self, batch: Any, *, is_all: bool) -> None:
        """Raise for a conforming batch that would be refused later; `is_all` if the call has no other one."""
        # The whole buffers first: what a slice has of them takes a walk over all columns.
        if is_all and (batch.get_total_buffer_size() <= self._one_chunk_bytes or batch.nbytes <= self._one_chunk_bytes):
            return
        self._router.check(batch)
        for row in _large_rows(batch, self._harmless_bytes(batch.schema.types)):
            for part in self._parts(row):
                for _ in self._encoder.encode_parts(part):
                    pass

    def _harmless_bytes(self, types: list[Any]) -> int:
        """Rows of so many bytes fit a request, whatever their batch adds to them."""
        growth = MAX_NESTED_GROWTH if any(map(pa.types.is_nested, types)) else MAX_GROWTH
        overhead = BATCH_OVERHEAD_BYTES + COLUMN_OVERHEAD_BYTES * len(types)
        return max(0, self._encoder.max_batch_bytes - overhead) // growth


def _large_rows(batch: Any, harmless_bytes: int) -> Iterator[Any]:
    """Every row that has more bytes, found by halving."""
    if batch.nbytes <= harmless_bytes or not batch.num_rows:
        return
    if batch.num_rows == 1:
        yield batch
        return
    half = batch.num_rows // 2
    yield from _large_rows(batch.slice(0, half), harmless_bytes)
    yield from _large_rows(batch.slice(half), harmless_bytes)
