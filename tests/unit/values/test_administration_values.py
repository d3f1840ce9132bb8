"""What permissions and rebalances look like to users, and on the wire."""

from __future__ import annotations

import pytest

from fluss import Acl, BucketMove, FlussError, TableBucket
from fluss.model.rebalancing import RebalanceStatus
from fluss.protocol import fluss_api_pb2 as pb
from fluss.values.rebalancing import progress_from_message


@pytest.mark.parametrize(
    "acl",
    [
        Acl("User:alice", "READ", "cluster.shop.orders"),
        Acl("*", "describe", "cluster.shop", "10.0.0.1"),
        Acl("User:bob", "all", "cluster"),
    ],
)
def test_a_permission_survives_its_message(acl: Acl) -> None:
    assert Acl.from_message(acl.to_message()) == acl


def test_a_permission_for_any_operation_makes_no_sense() -> None:
    with pytest.raises(FlussError, match="'any', which is for filters"):
        Acl("User:alice", "any", "cluster").to_message()


def test_moves_of_buckets_tell_servers_before_and_after() -> None:
    answer = pb.ListRebalanceProgressResponse(rebalance_id="r1", rebalance_status=RebalanceStatus.REBALANCING.value)
    table = answer.table_progress.add(table_id=7)
    for number, status in enumerate((RebalanceStatus.COMPLETED, RebalanceStatus.REBALANCING)):
        bucket = table.buckets_progress.add(rebalance_status=status.value)
        plan = bucket.rebalance_plan
        plan.bucket_id = number
        plan.original_leader, plan.new_leader = 0, 2
        plan.original_replicas.extend([0, 1])
        plan.new_replicas.extend([2, 1])
    progress = progress_from_message(answer)
    assert progress is not None
    assert not progress.is_done
    assert str(progress) == "rebalance r1: rebalancing, 1 of 2 buckets"
    done, under_way = (progress.moves[TableBucket(7, number)] for number in (0, 1))
    assert isinstance(done, BucketMove)
    assert (done.status, under_way.status) == ("completed", "rebalancing")
    assert (done.is_done, under_way.is_done) == (True, False)
    assert (done.original_leader, done.new_leader) == (0, 2)
    assert (done.original_replicas, done.new_replicas) == ((0, 1), (2, 1))
