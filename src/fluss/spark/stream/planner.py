"""The driver's side of a streaming query: answers Spark's questions about offsets.

A `StreamPlanner` lives in the reader process of one query, one thread calls it, and everything that it must remember
across a restart is in the offsets that it returns. Its other fields are caches and clocks:

    _initial     where the query began, if it did so in this process
    _target      where an AvailableNow run ends; set once, before the first batch
    _last_seen   the last known ends of logs, including those of partitions dropped since
    _view, _end  the last answers of the servers and the last end, for the progress report
    _away_since  since when servers have not answered, None while they do
    _idle_since  since when there have been no new rows, None while there are some

While servers do not answer, the end of the next batch of a running query is its start, which means that there is
nothing new: Spark asks again with the next trigger, and can stop the query meanwhile. A query that begins waits in the
call, and so does an AvailableNow run, because it would end if there were nothing new.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql.types import StructType

from fluss.errors import FlussError
from fluss.spark.options.parsing import FlussOptions
from fluss.spark.read.schema_check import check_schema
from fluss.spark.sessions.connection_cache import OpenTable
from fluss.spark.sessions.outage_retries import is_outage, patience_seconds, patiently
from fluss.spark.stream.cursor import QueryCursor
from fluss.spark.stream.data_loss import Loss, LossPolicy
from fluss.spark.stream.initial_offsets import starting_offsets
from fluss.spark.stream.lake_start import SnapshotFiles, lake_start
from fluss.spark.stream.limits import Limits
from fluss.spark.stream.next_batch import TableView, advance, find_losses, first_end, lag, receded_to, waiting_rows
from fluss.spark.stream.offsets import BucketKey, StreamOffsets
from fluss.spark.stream.table_watch import TableWatch, other_table_error
from fluss.spark.stream.tasks import MAX_LOG_TASK_ROWS, StreamTask, plan_lake_tasks, plan_tasks

if TYPE_CHECKING:
    from fluss.model.json_types import JsonObject

EXPIRY_CHECK_SECONDS = 10.0
"""How often the driver asks where logs begin; tasks notice when rows expire in between."""
RECEDED_GRACE_SECONDS = 60.0
"""A log that ends before the reached position may still be recovering: rows count as lost only after this time."""
ROW_BYTES_SECONDS = 30.0
"""How long a measured size of rows is used."""
IDLE_PAUSE_SHARE = 0.1
MAX_IDLE_PAUSE_SECONDS = 0.1
"""Without new rows, the pause between requests is this share of the idle time, up to `MAX_IDLE_PAUSE_SECONDS`."""

logger = logging.getLogger(__name__)


class StreamPlanner:
    """Plans the micro-batches of one query; see the module docstring."""

    def __init__(self, options: FlussOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._is_checked = False
        self._watch = TableWatch(options)
        self._patience_seconds = patience_seconds(options)
        self._policy = LossPolicy(str(options.table), fail=options.stream.fail_on_data_loss)
        self._initial: StreamOffsets | None = None
        self._target: dict[BucketKey, int] | None = None
        self._last_seen: dict[BucketKey, int] = {}
        self._view: TableView | None = None
        self._end: StreamOffsets | None = None
        self._away_since: float | None = None
        self._idle_since: float | None = None
        self._asked_at = float("-inf")
        self._expiry_checked_at = float("-inf")
        self._earliest: dict[BucketKey, int] = {}
        self._receded_since: dict[BucketKey, float] = {}
        self._row_bytes: dict[BucketKey, float] = {}
        self._row_bytes_at = float("-inf")
        self._turn = 0
        self._lake = SnapshotFiles(self._watch)
        name = options.stream.cursor
        self._cursor = None if name is None else QueryCursor(name, str(options.table), self._watch)

    def close(self) -> None:
        """Give the connection back."""
        if self._cursor is not None:
            self._cursor.close()
        self._watch.close()

    # ---- what Spark asks ----

    def initial(self) -> JsonObject:
        """The offsets at which a query without a checkpoint begins; the same however often Spark asks."""

        def find() -> StreamOffsets:
            has_primary_key = self._opened().info.has_primary_key()
            at_cursor = None if self._cursor is None else self._cursor.start()
            if at_cursor is not None:
                return at_cursor
            in_lake = lake_start(self._options, self._watch)
            if in_lake is not None:
                return in_lake
            return starting_offsets(self._options.read.start, self._watch, has_primary_key=has_primary_key)

        if self._initial is None:
            self._initial = patiently(find, self._patience_seconds)
        return self._initial.to_json()

    def fix_target(self) -> None:
        """Limit the query to the present ends of the logs: an AvailableNow run."""

        def find() -> dict[BucketKey, int]:
            self._watch.look(now=True)
            return self._watch.latest()

        self._target = patiently(find, self._patience_seconds)

    def next_end(self, start_json: Mapping[str, object], limits: Limits) -> dict[str, object]:
        """The end of the batch after `start_json`; `start_json` itself if there are no new rows."""
        start = StreamOffsets.from_json(start_json)
        if self._cursor is not None:
            self._cursor.reached(start, at_once=self._target is not None)
        must_wait = self._view is None or self._target is not None
        if must_wait:
            end = patiently(lambda: self._next_end(start, limits), self._patience_seconds)
        else:
            self._pause_while_idle()
            end = self._next_end_unless_away(start, limits)
        self._asked_at = time.monotonic()
        self._idle_since = (self._idle_since or self._asked_at) if end == start else None
        self._end = end
        return end.to_json()

    def tasks(self, start_json: Mapping[str, object], end_json: Mapping[str, object]) -> list[StreamTask]:
        """The tasks of a batch; the same for the same offsets, even in another process after a restart."""
        start, end = StreamOffsets.from_json(start_json), StreamOffsets.from_json(end_json)
        if start == end:
            return []  # also if `end` has a `begin`, which is for the first batch only
        start = end.begin or start
        info = patiently(self._opened, self._patience_seconds).info
        self._check_table(start)
        if start.lake is not None:  # a separate batch
            files, target = self._lake.of(start.lake)
            stop = start.lake.files if end.lake is None else end.lake.read
            return plan_lake_tasks(start.table_id, files[start.lake.read : stop], target)
        whole = None if info.has_primary_key() else MAX_LOG_TASK_ROWS
        max_rows = self._options.read.max_records_per_partition or whole
        return plan_tasks(start, end, max_rows, self._watch.partitions)

    def report(self) -> JsonObject | None:
        """For each bucket, the end of its log and the number of rows after the end of the last batch."""
        if self._view is None or self._end is None:
            return None
        latest = StreamOffsets(self._end.table_id, self._view.latest)
        behind = lag(self._end, self._view)
        return {
            **latest.to_json(),
            "lag": _numbers_only(StreamOffsets(self._end.table_id, behind)),
            "lag_rows": sum(behind.values()),
        }

    def _opened(self) -> OpenTable:
        opened = self._watch.opened
        if not self._is_checked:
            check_schema(opened.info, self._options, self._schema)
            self._is_checked = True
        return opened

    # ---- one batch ----

    def _pause_while_idle(self) -> None:
        """Pause while idle: Spark's default trigger asks a hundred times a second, whether or not rows arrive."""
        if self._idle_since is not None:
            now = time.monotonic()
            pause = min(IDLE_PAUSE_SHARE * (now - self._idle_since), MAX_IDLE_PAUSE_SECONDS)
            time.sleep(max(0.0, self._asked_at + pause - now))

    def _next_end_unless_away(self, start: StreamOffsets, limits: Limits) -> StreamOffsets:
        try:
            end = self._next_end(start, limits)
        except FlussError as error:
            if not is_outage(error):
                raise
            now = time.monotonic()
            if self._away_since is None:
                self._away_since = now
                logger.warning("the servers of %s do not answer: %s", self._options.table, error)
            if now - self._away_since > self._patience_seconds:
                raise FlussError(
                    f"the servers of {self._options.table} have not answered for {now - self._away_since:.0f} s "
                    f"(5 x scan.poll.timeout): check that they run. Last error: {error.message}",
                    error.error_code,
                ) from error
            return start
        if self._away_since is not None:
            logger.warning("the servers of %s answer again", self._options.table)
            self._away_since = None
        return end

    def _next_end(self, start: StreamOffsets, limits: Limits) -> StreamOffsets:
        self._check_table(start)
        view = self._view_now(start)
        losses = find_losses(start, view, self._last_seen)
        lost = [loss for loss in losses if loss.kind != "receded" or self._is_final(loss)]
        self._policy.judge(lost, self._watch.names_of(loss.key for loss in lost))
        self._remember(view, losses)
        start_here = receded_to(start, [loss for loss in lost if loss.kind == "receded"])
        self._turn += 1
        sizes = self._sizes(start_here, view, limits)
        files = [] if start.lake is None else self._lake.sizes(start.lake)
        end = advance(start_here, view, limits, sizes, self._turn, files)
        if end == start and start.is_initial and self._begins_now:
            return first_end(start, end)  # a batch without rows, so that the checkpoint has the start from now on
        return end

    @property
    def _begins_now(self) -> bool:
        """True if the start of the query depends on when it is requested."""
        position = self._options.read.start
        return position is not None and position.kind == "latest"

    def _check_table(self, start: StreamOffsets) -> None:
        if start.table_id != self._watch.table_id:
            raise other_table_error(str(self._options.table), start.table_id, self._watch.table_id)

    def _view_now(self, start: StreamOffsets) -> TableView:
        latest = self._watch.latest()
        now = time.monotonic()
        is_new = any(key not in self._last_seen or key not in start.positions for key in latest)
        if is_new or now - self._expiry_checked_at >= EXPIRY_CHECK_SECONDS:
            self._earliest = self._watch.earliest()
            self._expiry_checked_at = now
        if self._target is not None:
            latest = _until(self._target, latest, start)
        return TableView(latest, {key: offset for key, offset in self._earliest.items() if key in latest})

    def _is_final(self, loss: Loss) -> bool:
        """True if a log that ends too early has done so for long enough to count as lost."""
        since = self._receded_since.get(loss.key)
        return since is not None and time.monotonic() - since > RECEDED_GRACE_SECONDS

    def _remember(self, view: TableView, losses: list[Loss]) -> None:
        now = time.monotonic()
        receded = {loss.key for loss in losses if loss.kind == "receded"}
        self._receded_since = {key: self._receded_since.get(key, now) for key in receded}
        self._last_seen = dict(view.latest)
        self._view = view

    def _sizes(self, start: StreamOffsets, view: TableView, limits: Limits) -> dict[BucketKey, float]:
        """Row sizes, if bytes are limited: measured in buckets with waiting rows, again after `ROW_BYTES_SECONDS`."""
        if limits.max_bytes is None:
            return {}
        backlog = {key: rows for key, rows in waiting_rows(start, view).items() if rows}
        now = time.monotonic()
        known = backlog.keys() <= self._row_bytes.keys() and now - self._row_bytes_at < ROW_BYTES_SECONDS
        if known or not backlog:
            return self._row_bytes
        positions = {key: view.first_readable(key, start.positions.get(key, 0)) for key in backlog}
        known_bytes = {key: size for key, size in self._row_bytes.items() if key in view.latest}
        self._row_bytes = {**known_bytes, **self._watch.row_bytes(positions)}
        self._row_bytes_at = now
        return self._row_bytes


def _until(
    target: Mapping[BucketKey, int], latest: Mapping[BucketKey, int], start: StreamOffsets
) -> dict[BucketKey, int]:
    """The ends of the logs, but not after the target or, if greater, the reached position; without newer partitions."""
    ends = {}
    for key, offset in latest.items():
        position = start.positions.get(key)
        if position is not None:
            ends[key] = min(offset, max(position, target.get(key, position)))
        elif key in target:
            ends[key] = min(offset, target[key])
    return ends


def _numbers_only(offsets: StreamOffsets) -> object:
    """The JSON form of offsets, reduced to the numbers of the buckets."""
    document = offsets.to_json()
    return document.get("buckets", document.get("partitions"))
