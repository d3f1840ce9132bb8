"""The right of one attempt to append the rows of a partition, for as long as its process lives.

A claim is two notes at the coordinator (`commit_notes`). Both expire after `CLAIM_MS`, so the claim of a process that
died ends by itself. While the attempt appends, however long that takes, a thread renews the notes alternately: a note
cannot be extended, only removed and left again, and meanwhile the other note keeps the claim. Another attempt that
comes in this gap gets one note but not the other, and gives it back.

States: free -> taken (`take`) -> renewed (in the `with` block) -> given back, or lost: another attempt has the claim,
because this process was suspended or the coordinator did not answer for longer than `CLAIM_MS`. An attempt that lost
its claim stops.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
import threading
import time
from collections.abc import Iterable, Iterator
from types import TracebackType

import pyarrow as pa

from fluss.errors import ErrorCode, FlussError
from fluss.spark.write.commit_notes import PAUSE_SECONDS, Markers

CLAIM_MS = 20_000
RENEWALS = 4
"""How often one of the notes is renewed in `CLAIM_MS`."""
MAX_TOKEN_BITS = 62

logger = logging.getLogger(__name__)


class Claim:
    """A claim of one attempt: `take` it, then use it in a `with` block. Not thread-safe."""

    def __init__(self, markers: Markers, partition_id: int) -> None:
        self._markers = markers
        self._notes = markers.claim_ids(partition_id)
        self._ends = [0.0, 0.0]  # until when each note certainly exists
        self._token = secrets.randbits(MAX_TOKEN_BITS)
        self._is_over = threading.Event()
        self._is_lost = False
        self._renewing = threading.Thread(target=self._renew, name="fluss-claim", daemon=True)

    def take(self) -> bool:
        """Try once to get the claim; False while another attempt has it."""
        if not self._leave(0):
            return False
        if not self._leave(1):
            self._remove(0)
            return False
        return True

    def checked(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Pass batches on as long as the claim holds; raise when it is lost."""
        for batch in batches:
            if self._is_lost:
                text = "another attempt of this task has taken over, because this one did not renew its claim in time"
                raise FlussError(text, ErrorCode.REQUEST_TIME_OUT)
            yield batch

    def give_back(self) -> None:
        """Release the claim for other attempts."""
        for place in (1, 0):
            self._remove(place)

    def __enter__(self) -> Claim:
        self._renewing.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._is_over.set()
        self._renewing.join()
        if not self._is_lost:
            self.give_back()

    # ---- notes ----

    def _leave(self, place: int) -> bool:
        begun = time.monotonic()
        if not self._markers.leave(self._notes[place], CLAIM_MS, self._token):
            return False
        self._ends[place] = begun + CLAIM_MS / 1000
        return True

    def _remove(self, place: int) -> None:
        with contextlib.suppress(FlussError):  # it expires soon anyway
            self._markers.remove(self._notes[place])

    def _renew(self) -> None:
        place = 0
        while not self._is_lost and not self._is_over.wait(CLAIM_MS / 1000 / RENEWALS):
            try:
                self._is_lost = not self._renewed(place)
            except FlussError as error:  # other attempts get no answer from the coordinator either
                logger.warning("the claim %s could not be renewed yet: %s", self._notes[place], error)
            place = 1 - place

    def _renewed(self, place: int) -> bool:
        """Renew one note; False if another attempt has the claim."""
        other = 1 - place
        if time.monotonic() < self._ends[place]:  # else it has expired, and may already belong to another attempt
            self._markers.remove(self._notes[place])
        while not self._leave(place):  # another attempt has this note: it has the claim, or is trying to take it
            if time.monotonic() > self._ends[other]:
                return False
            if self._is_over.wait(PAUSE_SECONDS):
                return True
        if time.monotonic() < self._ends[other] or self._leave(other):
            return True
        self._remove(place)  # too late: both notes had expired, and another attempt has the other one
        return False
