"""Choosing whole batches for a fetch with projection or filter: a decision over batch headers, no I/O.

Without projection and filter a fetch is a plain byte range and does not come here.

Rules: batches are added while the running *answered* size fits the budget; the first batch is
returned whole when the caller says so; a batch without rows costs no budget, and is left out when both filter and
projection are on. A scan stops after `MAX_SCANNED_BATCHES`, because it runs in the event loop: a filter that drops
everything then answers how far it came, and the client asks again from there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from fluss.codec.batches.log_batch import BatchHeader
from fluss.codec.buffers import ReadableBuffer

MAX_SCANNED_BATCHES = 1024
# Below the size of the smallest header nothing whole fits.
MIN_BUDGET_BYTES = 48

Piece = bytes | bytearray | memoryview
Batches = Iterable[tuple[ReadableBuffer, int, BatchHeader]]
Project = Callable[[ReadableBuffer, int, BatchHeader], "list[Piece]"]
Keep = Callable[[ReadableBuffer, int, BatchHeader], bool]


@dataclass
class Selection:
    """The chosen bytes and how far the scan came.

    `scanned_end` is the offset behind the last batch that was looked at and either kept or dropped, `kept_end` behind
    the last kept one; both -1 when there is none. `scanned_bytes` are stored bytes: what a long poll counts.
    """

    pieces: list[Piece] = field(default_factory=list)
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
        """What the client must be told so that it does not ask for dropped batches again."""
        if self.budget_reached or self.scanned_end <= self.kept_end:
            return None
        return self.scanned_end


def select_batches(
    selection: Selection,
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
        pieces: list[Piece] = (
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


def _scanned(selection: Selection, header: BatchHeader) -> None:
    selection.scanned_batches += 1
    selection.scanned_bytes += header.size
    selection.scanned_end = header.next_offset


def _add_empty(selection: Selection, buffer: ReadableBuffer, position: int, header: BatchHeader) -> None:
    """A batch without rows travels as it is, so that the reader's position moves over it."""
    selection.pieces.append(memoryview(buffer)[position : position + header.size])
    selection.kept_end = header.next_offset
