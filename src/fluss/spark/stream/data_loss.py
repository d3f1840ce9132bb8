"""Rows that a query should have read and that nobody has any more: what happened, in words, and what to do about it.

With `failOnDataLoss=true` (the default) a loss ends the query with the offsets in the text. With `false` it is logged
once per place, and the query goes on with what is there.
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
    """Rows of one bucket, or of all buckets of a partition, that are gone.

    expired: the log begins at `available`, behind `wanted`. receded: it ends at `available`, before `wanted`, which was
    read already. dropped: the partition does not exist any more; `available` is where its log ended when last seen,
    None if this process never saw it.
    """

    kind: Literal["expired", "receded", "dropped"]
    key: BucketKey
    wanted: int
    available: int | None

    def text(self, bucket: str) -> str:
        """For people; `bucket` says which."""
        if self.kind == "expired":
            assert self.available is not None
            return (
                f"{bucket}: the next offset to read is {self.wanted}, but the log now begins at {self.available}: "
                f"{self.available - self.wanted} rows have expired (table.log.ttl)"
            )
        if self.kind == "receded":
            return f"{bucket}: the next offset to read is {self.wanted}, but the log ends at {self.available}"
        seen = "rows behind it may be lost" if self.available is None else f"its log went up to {self.available}"
        return f"{bucket}: the partition was dropped when the next offset to read was {self.wanted}; {seen}"


class LossPolicy:
    """What a query does about losses. Remembers what it has logged."""

    def __init__(self, table: str, *, fail: bool) -> None:
        self._table = table
        self._fail = fail
        self._logged: set[Loss] = set()

    def judge(self, losses: Iterable[Loss], names: dict[BucketKey, str]) -> None:
        """Raise, or log what is new."""
        found = list(losses)
        if not found:
            return
        texts = [loss.text(names[loss.key]) for loss in found]
        if self._fail:
            shown = "; ".join(texts[:MAX_LOSSES_IN_TEXT])
            more = f"; and {len(texts) - MAX_LOSSES_IN_TEXT} more" if len(texts) > MAX_LOSSES_IN_TEXT else ""
            raise FlussError(
                f"data of table {self._table} was lost before the query could read it: {shown}{more}. "
                "Set failOnDataLoss=false to go on with what is there, or start with a new checkpoint",
                ErrorCode.LOG_OFFSET_OUT_OF_RANGE_EXCEPTION,
            )
        if len(self._logged) > MAX_REMEMBERED_LOSSES:
            self._logged.clear()
        for loss, text in zip(found, texts, strict=True):
            if loss not in self._logged:
                self._logged.add(loss)
                logger.warning("failOnDataLoss=false, table %s: %s", self._table, text)
