"""The calls of a tiering service: what to tier (heartbeats), and how far a table is in the lake (prepare, commit).

An assignment is a table with two numbers: the epoch of the coordinator that assigned it, which changes each time the
coordinator starts, and the table's own, which grows with every assignment. A heartbeat with an assignment from before a
restart is refused with code 23, and one for a table that has since been assigned to another service with code 50. In
both cases the round must be abandoned.

Offsets are the next ones to read. All calls block and may be made from any thread.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from fluss.api.connection import BaseConnection, engine_of
from fluss.client.engine.admin import lake_snapshot
from fluss.client.engine.engine import Engine
from fluss.errors import ErrorCode, FlussError
from fluss.model.paths import TableBucket, TablePath
from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol.api_keys import ApiKey
from fluss.values.basic import LakeSnapshot

if TYPE_CHECKING:
    from google.protobuf.message import Message

KEEP_ALL_SNAPSHOTS = -1

T = TypeVar("T")


@dataclass(frozen=True)
class TieringTable:
    """A table that the coordinator assigned to one tiering service."""

    table_id: int
    path: TablePath
    tiering_epoch: int
    coordinator_epoch: int


@dataclass(frozen=True)
class FinishedTable:
    """A finished round. `forced`: it ran out of time, so that the table is due again at once."""

    table: TieringTable
    forced: bool = False
    file_size: int | None = None
    record_count: int | None = None


@dataclass(frozen=True)
class HeartbeatAnswer:
    """The answer to a heartbeat: the `table` to tier next, if one is due, and `errors` for refused tables."""

    coordinator_epoch: int
    table: TieringTable | None = None
    errors: Mapping[TieringTable, FlussError] = field(default_factory=dict)


class TieringCalls:
    """The calls of one tiering service over one connection.

    ```python
    calls = TieringCalls.of(connection)
    assigned = calls.heartbeat(request_table=True).table
    path = calls.prepare(assigned.table_id, assigned.path, {TableBucket(assigned.table_id, None, 0): 120})
    calls.commit(assigned.table_id, snapshot_id, path)
    calls.heartbeat(finished=[FinishedTable(assigned)])
    ```
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @classmethod
    def of(cls, connection: BaseConnection) -> TieringCalls:
        """Return the calls of a service over an open connection."""
        return cls(engine_of(connection))

    def heartbeat(
        self,
        tiering: Iterable[TieringTable] = (),
        finished: Iterable[FinishedTable] = (),
        failed: Iterable[TieringTable] = (),
        *,
        request_table: bool = False,
    ) -> HeartbeatAnswer:
        """Report the tables that are being tiered, done and failed; ask for one more table with `request_table`.

        The request is not repeated after a lost connection, because the coordinator could then assign a second table.
        Send the next heartbeat in time.
        """
        renewed, done, given_up = list(tiering), list(finished), list(failed)
        request = pb.LakeTieringHeartbeatRequest(
            tiering_tables=[_beat(table) for table in renewed],
            finished_tables=[_beat(item.table, item) for item in done],
            failed_tables=[_beat(table) for table in given_up],
            force_finished_tables=[item.table.table_id for item in done if item.forced],
            request_table=request_table,
        )
        answer = self._run(self._engine.call_coordinator(ApiKey.LAKE_TIERING_HEARTBEAT, request))
        errors = {
            **_errors(renewed, answer.tiering_table_resp),
            **_errors([item.table for item in done], answer.finished_table_resp),
            **_errors(given_up, answer.failed_table_resp),
        }
        table = None
        if answer.HasField("tiering_table"):
            info = answer.tiering_table
            path = TablePath(info.table_path.database_name, info.table_path.table_name)
            table = TieringTable(info.table_id, path, info.tiering_epoch, answer.coordinator_epoch)
        return HeartbeatAnswer(answer.coordinator_epoch, table, errors)

    def prepare(
        self,
        table_id: int,
        path: TablePath,
        offsets: Mapping[TableBucket, int],
        *,
        ignore_previous: bool = False,
    ) -> str:
        """Have the coordinator write the offsets file of a round; returns its address.

        Buckets that are not in `offsets` keep those of the newest known snapshot, unless `ignore_previous`.
        """
        request = pb.PrepareLakeTableSnapshotRequest(ignore_previous_table_offsets=ignore_previous)
        entry = request.bucket_offsets.add(table_id=table_id)
        entry.table_path.database_name, entry.table_path.table_name = path.database_name, path.table_name
        for bucket, offset in offsets.items():
            entry.bucket_offsets.add(
                partition_id=bucket.partition_id, bucket_id=bucket.bucket_id, log_end_offset=offset
            )
        answer = self._run(self._repeatable(ApiKey.PREPARE_LAKE_TABLE_SNAPSHOT, request))
        (result,) = answer.prepare_lake_table_resp
        _raise_error(result)
        return str(result.lake_table_offsets_path)

    def commit(
        self,
        table_id: int,
        snapshot_id: int,
        offsets_path: str,
        *,
        earliest_snapshot_id: int | None = None,
        max_timestamps: Mapping[TableBucket, tuple[int, int]] | None = None,
    ) -> None:
        """Register a lake snapshot; doing it twice changes nothing. Code 7 if the table was dropped.

        Older snapshots are forgotten, except those from `earliest_snapshot_id` on (`KEEP_ALL_SNAPSHOTS`: all).
        `max_timestamps` has, for metrics, (end offset, time of the newest row in milliseconds) by bucket.
        """
        request = pb.CommitLakeTableSnapshotRequest()
        request.lake_table_snapshot_metadata.add(
            table_id=table_id,
            snapshot_id=snapshot_id,
            tiered_bucket_offsets_file_path=offsets_path,
            readable_bucket_offsets_file_path=offsets_path,
            earliest_snapshot_id_to_keep=earliest_snapshot_id,
        )
        if max_timestamps:
            details = request.tables_req.add(table_id=table_id, snapshot_id=snapshot_id)
            for bucket, (offset, timestamp) in max_timestamps.items():
                details.buckets_req.add(
                    partition_id=bucket.partition_id,
                    bucket_id=bucket.bucket_id,
                    log_end_offset=offset,
                    max_timestamp=timestamp,
                )
        answer = self._run(self._repeatable(ApiKey.COMMIT_LAKE_TABLE_SNAPSHOT, request))
        for result in answer.table_resp:
            _raise_error(result)

    def snapshot(
        self, path: TablePath, snapshot_id: int | None = None, *, readable: bool = False
    ) -> tuple[int, LakeSnapshot] | None:
        """The table id and a registered snapshot, the newest or that with `snapshot_id`; None if it does not exist."""
        request = pb.GetLakeSnapshotRequest(snapshot_id=snapshot_id, readable=readable)
        request.table_path.database_name, request.table_path.table_name = path.database_name, path.table_name
        try:
            answer = self._run(self._repeatable(ApiKey.GET_LAKE_SNAPSHOT, request))
        except FlussError as error:
            if error.error_code == ErrorCode.LAKE_SNAPSHOT_NOT_EXIST:
                return None
            raise
        return answer.table_id, lake_snapshot(answer)

    def _repeatable(self, api_key: ApiKey, request: Message) -> Coroutine[Any, Any, Any]:
        """Make an idempotent call, which is repeated after a lost connection."""
        return self._engine.call_coordinator(api_key, request, idempotent=True)

    def _run(self, call: Coroutine[Any, Any, T]) -> T:
        return self._engine.run(call)


def _beat(table: TieringTable, finished: FinishedTable | None = None) -> pb.PbHeartbeatReqForTable:
    beat = pb.PbHeartbeatReqForTable(
        table_id=table.table_id, coordinator_epoch=table.coordinator_epoch, tiering_epoch=table.tiering_epoch
    )
    if finished is not None and (finished.file_size is not None or finished.record_count is not None):
        beat.lake_tiering_stats.CopyFrom(
            pb.PbLakeTieringStats(file_size=finished.file_size, record_count=finished.record_count)
        )
    return beat


def _errors(
    tables: list[TieringTable], answers: Iterable[pb.PbHeartbeatRespForTable]
) -> dict[TieringTable, FlussError]:
    return {
        table: FlussError(answer.error.error_message, answer.error.error_code)
        for table, answer in zip(tables, answers, strict=True)
        if answer.HasField("error")
    }


def _raise_error(result: Any) -> None:
    if result.HasField("error_code") and result.error_code != ErrorCode.NONE:
        raise FlussError(result.error_message, result.error_code)
