"""Selection of whole batches for a fetch with projection or filter, based on batch headers, without I/O.

A fetch without projection and filter is a plain byte range and does not use this module.

Rules: batches are added while the total size of the *answer* fits the budget; the first batch is returned whole if the
caller asks for it; a batch without rows costs no budget, and is left out if both filter and projection are used. A scan
stops after `MAX_SCANNED_BATCHES`, because it runs in the event loop: with a filter that drops everything, the answer
then has the offset that was reached, and the client continues from there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from fluss.codec.batches.log_batch import BatchHeader
from fluss.codec.buffers import ReadableBuffer

MAX_SCANNED_BATCHES = 1024
# With less than the size of the smallest header left, no whole batch fits.
MIN_BUDGET_BYTES = 48

RecordBytes = bytes | bytearray | memoryview
Batches = Iterable[tuple[ReadableBuffer, int, BatchHeader]]
Project = Callable[[ReadableBuffer, int, BatchHeader], "list[RecordBytes]"]
Keep = Callable[[ReadableBuffer, int, BatchHeader], bool]


@dataclass
class BatchSelection:
    """The selected bytes, and how far the scan has come.

    `scanned_end` is the offset after the last batch that was either kept or dropped, `kept_end` the offset after the
    last kept one; both are -1 if there is none. `scanned_bytes` are stored bytes, which a long poll counts.
    """

    pieces: list[RecordBytes] = field(default_factory=list)
    size_bytes: int = 0
    scanned_batches: int = 0
    scanned_bytes: int = 0
    scanned_end: int = -1
    kept_end: int = -1
    budget_reached: bool = False
    scan_limit_reached: bool = False

    @property
    def is_empty(self) -> bool:
        return self.kept_end < 0

    @property
    def filtered_end_offset(self) -> int | None:
        """The offset that is sent to the client so that it does not fetch dropped batches again; None if not needed."""
        if self.budget_reached or self.scanned_end <= self.kept_end:
            return None
        return self.scanned_end


def select_batches(
    selection: BatchSelection,
    batches: Batches,
    budget_bytes: int,
    *,
    first_whole: bool,
    project: Project | None,
    keep: Keep | None,
) -> None:
    """Add batches of one segment to `selection` until the budget or the scan limit is reached."""
    for buffer, position, header in batches:
        if selection.scanned_batches >= MAX_SCANNED_BATCHES:
            selection.scan_limit_reached = True
            return
        if keep is not None and not keep(buffer, position, header):
            _scanned(selection, header)
            continue
        if header.record_count == 0:
            if keep is None or project is None:
                _add_empty(selection, buffer, position, header)
            _scanned(selection, header)
            continue
        if selection.size_bytes + MIN_BUDGET_BYTES > budget_bytes and not (first_whole and selection.size_bytes == 0):
            selection.budget_reached = True
            return
        pieces: list[RecordBytes] = (
            [memoryview(buffer)[position : position + header.size]]
            if project is None
            else project(buffer, position, header)
        )
        size = sum(map(len, pieces))
        if selection.size_bytes + size > budget_bytes and not (first_whole and selection.size_bytes == 0):
            selection.budget_reached = True
            return
        selection.pieces += pieces
        selection.size_bytes += size
        selection.kept_end = header.next_offset
        _scanned(selection, header)


def _scanned(selection: BatchSelection, header: BatchHeader) -> None:
    selection.scanned_batches += 1
    selection.scanned_bytes += header.size
    selection.scanned_end = header.next_offset


def _add_empty(selection: BatchSelection, buffer: ReadableBuffer, position: int, header: BatchHeader) -> None:
    """Add a batch without rows unchanged, so that the reader's position moves past it."""
    selection.pieces.append(memoryview(buffer)[position : position + header.size])
    selection.kept_end = header.next_offset
