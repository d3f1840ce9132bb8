"""Rows that a query should have read and that no longer exist: the description of a loss, and the reaction to it.

With `failOnDataLoss=true` (the default) a loss ends the query with an error that has the offsets. With `false` each
loss is logged once, and the query continues with the rows that exist.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from fluss.errors import ErrorCode, FlussError
from fluss.spark.stream.offsets import BucketKey

MAX_LOSSES_IN_TEXT = 5
MAX_REMEMBERED_LOSSES = 10_000

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Loss:
    """Lost rows of one bucket, or of all buckets of a partition.

    expired: the log begins at `available`, after `wanted`. receded: it ends at `available`, before `wanted`, which was
    already read. dropped: the partition no longer exists; `available` is the last known end of its log, None if this
    process never saw it.
    """

    kind: Literal["expired", "receded", "dropped"]
    key: BucketKey
    wanted: int
    available: int | None

    def text(self, bucket: str) -> str:
        """Describe the loss for users; `bucket` is the name of the bucket."""
        if self.kind == "expired":
            assert self.available is not None
            return (
                f"{bucket}: the next offset to read is {self.wanted}, but the log now begins at {self.available}: "
                f"{self.available - self.wanted} rows have expired (table.log.ttl)"
            )
        if self.kind == "receded":
            return f"{bucket}: the next offset to read is {self.wanted}, but the log ends at {self.available}"
        seen = "rows after it may be lost" if self.available is None else f"its log went up to {self.available}"
        return f"{bucket}: the partition was dropped when the next offset to read was {self.wanted}; {seen}"


class LossPolicy:
    """The reaction of a query to losses; it remembers which losses it has logged."""

    def __init__(self, table: str, *, fail: bool) -> None:
        self._table = table
        self._fail = fail
        self._logged: set[Loss] = set()

    def judge(self, losses: Iterable[Loss], names: dict[BucketKey, str]) -> None:
        """With `failOnDataLoss` raise an error about the losses, else log those that are not logged yet."""
        found = list(losses)
        if not found:
            return
        texts = [loss.text(names[loss.key]) for loss in found]
        if self._fail:
            shown = "; ".join(texts[:MAX_LOSSES_IN_TEXT])
            more = f"; and {len(texts) - MAX_LOSSES_IN_TEXT} more" if len(texts) > MAX_LOSSES_IN_TEXT else ""
            raise FlussError(
                f"data of table {self._table} was lost before the query could read it: {shown}{more}. "
                "Set failOnDataLoss=false to continue with the remaining rows, or start with a new checkpoint",
                ErrorCode.LOG_OFFSET_OUT_OF_RANGE_EXCEPTION,
            )
        if len(self._logged) > MAX_REMEMBERED_LOSSES:
            self._logged.clear()
        for loss, text in zip(found, texts, strict=True):
            if loss not in self._logged:
                self._logged.add(loss)
                logger.warning("failOnDataLoss=false, table %s: %s", self._table, text)
