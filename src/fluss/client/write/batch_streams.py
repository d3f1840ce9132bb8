"""Streams of record batches: written as they come, so an error in the middle says which rows were written.

A table is checked as a whole before any of its rows is sent. A stream may be larger than memory, so its batches are
sent one by one; if one of them does not fit, or cannot be read, the earlier ones are waited for, and the error names
their rows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from fluss.client.send.acknowledgements import WriteResultHandle, chunks_of, joined_handle
from fluss.errors import FlussError

if TYPE_CHECKING:
    import pyarrow as pa

SETTLE_SECONDS = 60.0
"""How long an error waits for the acknowledgement of the rows before it."""

Write: TypeAlias = "Callable[[pa.RecordBatch, int], WriteResultHandle]"


def write_stream(reader: pa.RecordBatchReader, write: Write) -> WriteResultHandle:
    """Write all batches of a `pyarrow.RecordBatchReader`; `write` takes a batch and the number of its first row."""
    rows = _StreamedRows()
    try:
        for batch in reader:
            rows.add(batch.num_rows, write(batch, rows.count))
    except Exception as error:
        message = error.message if isinstance(error, FlussError) else f"the stream cannot be read: {error}"
        code = error.error_code if isinstance(error, FlussError) else None
        text = f"{message}. {rows.written_in_words()}"
        raise (FlussError(text) if code is None else FlussError(text, code)) from error
    return joined_handle(rows.handles())


class _StreamedRows:
    """The rows of a stream that were handed over, and those known to be written."""

    def __init__(self) -> None:
        self.count = 0
        self._written = 0
        self._waiting: deque[tuple[int, WriteResultHandle]] = deque()

    def add(self, rows: int, handle: WriteResultHandle) -> None:
        self.count += rows
        self._waiting.append((self.count, handle))
        while self._waiting and _is_written(self._waiting[0][1]):
            self._written = self._waiting.popleft()[0]

    def handles(self) -> list[WriteResultHandle]:
        return [handle for _, handle in self._waiting]

    def written_in_words(self) -> str:
        """Describe the written rows; waits for those in flight."""
        ranges: list[list[int]] = [[0, self._written]] if self._written else []
        first, doubts = self._written, ""
        for end, handle in self._waiting:
            failure = self._failure(handle)
            if failure is not None:
                # Its rows may have gone to several buckets, and some of them may be written.
                doubts += f"; rows {first} to {end - 1} were written partly or not at all: {failure.message}"
            elif ranges and ranges[-1][1] == first:
                ranges[-1][1] = end
            else:
                ranges.append([first, end])
            first = end
        said = " and ".join(f"{low} to {high - 1}" for low, high in ranges if high > low)
        if said:
            return f"Of the stream the rows {said} were written{doubts}"
        return f"Nothing of it is known to be written{doubts}" if doubts else "Nothing of it was written"

    @staticmethod
    def _failure(handle: WriteResultHandle) -> FlussError | None:
        try:
            handle.wait().result(SETTLE_SECONDS)
        except FlussError as error:
            return error
        return None


def _is_written(handle: WriteResultHandle) -> bool:
    """True if it was written. An error stays unreported: the handle or the next write must raise it."""
    return all(chunk.settled and chunk.error is None for chunk in chunks_of(handle))
