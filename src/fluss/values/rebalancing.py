"""`RebalanceProgress`: the buckets that a rebalance moves, and its progress."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fluss.model.rebalancing import RebalanceStatus
from fluss.protocol import fluss_api_pb2 as pb
from fluss.values.basic import TableBucket
from fluss.values.wire_names import word_for

_UNDER_WAY = {"not_started", "rebalancing"}


@dataclass(frozen=True)
class BucketMove:
    """The change that a rebalance makes to one bucket: the ids of its servers before and after."""

    status: str
    original_leader: int | None
    new_leader: int | None
    original_replicas: tuple[int, ...]
    new_replicas: tuple[int, ...]

    @property
    def is_done(self) -> bool:
        """True if the move of the bucket has ended."""
        return self.status not in _UNDER_WAY


@dataclass(frozen=True)
class RebalanceProgress:
    """A rebalance: `status` is not_started, rebalancing, failed, completed, canceled or timeout."""

    rebalance_id: str
    status: str
    moves: Mapping[TableBucket, BucketMove] = field(default_factory=dict)

    @property
    def is_done(self) -> bool:
        """True if the rebalance has ended, successfully or not."""
        return self.status not in _UNDER_WAY

    def __str__(self) -> str:
        done = sum(move.is_done for move in self.moves.values())
        return f"rebalance {self.rebalance_id}: {self.status}, {done} of {len(self.moves)} buckets"


def progress_from_message(answer: pb.ListRebalanceProgressResponse) -> RebalanceProgress | None:
    """The progress in a LIST_REBALANCE_PROGRESS answer; None if there has been no rebalance."""
    if not answer.HasField("rebalance_id"):
        return None
    moves = {}
    for table in answer.table_progress:
        for bucket in table.buckets_progress:
            plan = bucket.rebalance_plan
            partition_id = plan.partition_id if plan.HasField("partition_id") else None
            moves[TableBucket.with_partition(table.table_id, partition_id, plan.bucket_id)] = BucketMove(
                word_for(RebalanceStatus, bucket.rebalance_status),
                plan.original_leader if plan.HasField("original_leader") else None,
                plan.new_leader if plan.HasField("new_leader") else None,
                tuple(plan.original_replicas),
                tuple(plan.new_replicas),
            )
    return RebalanceProgress(answer.rebalance_id, word_for(RebalanceStatus, answer.rebalance_status), moves)
