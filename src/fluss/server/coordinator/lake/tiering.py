"""LAKE_TIERING_HEARTBEAT: tiering services report their progress and get the next table.

The tables with a lake are read from the catalog: every call first loads its changes. Epochs and times of tables are
also in the catalog, so that they survive a restart. A service from before a restart is refused because of the
coordinator's own epoch (code 23); even if it knew that epoch, the one of its old round would no longer be valid.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from fluss.errors import ErrorCode, FlussError
from fluss.model.properties import DATALAKE_ENABLED, DATALAKE_FRESHNESS
from fluss.protocol import fluss_api_pb2 as pb
from fluss.server.apis.authorizer import table_resource
from fluss.server.apis.environment import Environment
from fluss.server.coordinator.lake.metrics import TieringMetrics, tiering_metrics
from fluss.server.coordinator.lake.tiering_states import TieringStates
from fluss.server.runtime.handlers import RequestContext
from fluss.server.runtime.time_slices import TimeSlices


class LakeTiering:
    """Assigns tables to tiering services. Called on the event loop."""

    def __init__(self, environment: Environment, coordinator_epoch: int) -> None:
        self._environment = environment
        self._records = environment.catalog.store.lake
        self._coordinator_epoch = coordinator_epoch
        self._seen_change: int | None = None
        self.states = TieringStates(
            environment.clock, environment.config.lake_tiering_timeout_ms, self._records.record_epoch
        )

    def update(self) -> None:
        """Load changes of the catalog, and make the changes of state that are due by now."""
        self._follow_catalog()
        self.states.update()

    def make_due(self, table_id: int) -> None:
        """Make a table due for tiering now, whatever its freshness."""
        self._follow_catalog()
        self.states.make_due(table_id)

    def metrics(self) -> TieringMetrics:
        """Return the metrics of tiering as of now, with the newest state of the catalog."""
        self.update()
        return tiering_metrics(self.states, self._records, self._environment.clock())

    async def heartbeat(
        self, context: RequestContext, request: pb.LakeTieringHeartbeatRequest
    ) -> pb.LakeTieringHeartbeatResponse:
        """Handle failed tables, then renewed and finished ones, and finally assign the next table; in time slices."""
        self.update()
        response = pb.LakeTieringHeartbeatResponse(coordinator_epoch=self._coordinator_epoch)
        time_slices = TimeSlices()
        await self._each(time_slices, context, request.failed_tables, response.failed_table_resp, self._fail)
        await self._each(time_slices, context, request.tiering_tables, response.tiering_table_resp, self._renew)
        forced = frozenset(request.force_finished_tables)
        await self._each(
            time_slices,
            context,
            request.finished_tables,
            response.finished_table_resp,
            lambda table: self._finish(table, table.table_id in forced),
        )
        if request.request_table:
            authorizer = self._environment.authorizer
            table = self.states.take(lambda path: authorizer.permits(context, table_resource(path)))
            if table is not None:
                info = response.tiering_table
                info.table_id, info.tiering_epoch = table.table_id, table.epoch
                info.table_path.database_name = table.path.database_name
                info.table_path.table_name = table.path.table_name
        return response

    async def _each(
        self,
        time_slices: TimeSlices,
        context: RequestContext,
        tables: Iterable[pb.PbHeartbeatReqForTable],
        answers: Any,
        step: Callable[[pb.PbHeartbeatReqForTable], None],
    ) -> None:
        for table in tables:
            await time_slices.yield_if_over()
            answer = answers.add(table_id=table.table_id)
            try:
                self._environment.authorizer.check_known_table_id(context, table.table_id)
                if table.coordinator_epoch != self._coordinator_epoch:
                    raise FlussError(
                        f"the coordinator was restarted: its epoch is {self._coordinator_epoch}, "
                        f"not {table.coordinator_epoch}; give up the round",
                        ErrorCode.INVALID_COORDINATOR_EXCEPTION,
                    )
                step(table)
            except FlussError as error:
                answer.error.error_code, answer.error.error_message = error.error_code, error.message

    def _renew(self, table: pb.PbHeartbeatReqForTable) -> None:
        self.states.renew(table.table_id, table.tiering_epoch)

    def _fail(self, table: pb.PbHeartbeatReqForTable) -> None:
        self.states.fail(table.table_id, table.tiering_epoch)

    def _finish(self, table: pb.PbHeartbeatReqForTable, forced: bool) -> None:
        stats = table.lake_tiering_stats
        file_size = stats.file_size if stats.HasField("file_size") else None
        record_count = stats.record_count if stats.HasField("record_count") else None
        if self.states.finish(table.table_id, table.tiering_epoch, forced, file_size, record_count):
            self._records.record_round(table.table_id, self._environment.clock(), file_size, record_count)

    def _follow_catalog(self) -> None:
        catalog = self._environment.catalog
        catalog.refresh()
        if catalog.change == self._seen_change:
            return
        wanted = {entry.table_id: entry for entry in catalog.tables() if entry.property(DATALAKE_ENABLED)}
        for table_id in [known for known in self.states.tables if known not in wanted]:
            self.states.forget(table_id)
        for table_id, entry in wanted.items():
            freshness_ms = int(entry.property(DATALAKE_FRESHNESS))
            if table_id in self.states.tables:
                self.states.tables[table_id].freshness_ms = freshness_ms
                continue
            known = self._records.tiering(table_id)
            last_ms = entry.created_time if known.last_tiered_time is None else known.last_tiered_time
            table = self.states.track(table_id, entry.path, freshness_ms, known.tiering_epoch, last_ms)
            table.file_size, table.record_count = known.file_size, known.record_count
        self._seen_change = catalog.change
