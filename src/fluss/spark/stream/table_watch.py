"""The table of a running query, watched by its driver: its partitions, and the beginnings and ends of their logs.

A `TableWatch` lives in the driver's reader process as long as the query and keeps one connection. Calls block, and one
thread makes them. Partitions and the identity of the table are requested every `LOOK_SECONDS`; in between, `latest`
costs only one LIST_OFFSETS per tablet (and partition).

Invariant: all results belong to the table id with which it was opened. If the table was dropped, or dropped and created
again, calls raise an error that explains this. If a server does not answer within `ANSWER_SECONDS`, a call raises an
error for which `outage_retries.is_outage` is true; the next call may succeed.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Coroutine, Iterable, Mapping
from typing import Any, TypeVar

from fluss.client.engine.table import TableAccess
from fluss.errors import ErrorCode, FlussError
from fluss.spark.options.parsing import FlussOptions
from fluss.spark.read.offset_ranges import AskOffsets
from fluss.spark.sessions.connection_cache import OpenTable, open_table
from fluss.spark.sessions.outage_retries import is_outage
from fluss.spark.stream.offsets import BucketKey
from fluss.values.basic import TableBucket

LOOK_SECONDS = 2.0
ANSWER_SECONDS = 5.0
MAX_VANISHING_ROUNDS = 5
"""How many times in a row partitions may vanish while their offsets are requested."""

T = TypeVar("T")
logger = logging.getLogger(__name__)


class TableWatch:
    """Watches the table of one query; see the module docstring. The first call opens it."""

    def __init__(self, options: FlussOptions) -> None:
        self._options = options
        self._lease = contextlib.ExitStack()
        self._opened: OpenTable | None = None
        self._partitions: dict[int | None, str | None] = {}
        self._just_gone: dict[int | None, str | None] = {}
        self._looked_at = float("-inf")

    def close(self) -> None:
        """Give the connection back."""
        self._opened = None
        self._lease.close()

    @property
    def opened(self) -> OpenTable:
        """The table as it was when the watch was opened."""
        if self._opened is None:
            self._opened = self._lease.enter_context(open_table(self._options))
        return self._opened

    @property
    def table_id(self) -> int:
        """The id of the table, which never changes."""
        return self.opened.info.table_id

    # ---- partitions ----

    def look(self, *, now: bool = False) -> None:
        """Update the partitions and check the identity of the table, if that is due or requested by `now`."""
        if not now and time.monotonic() - self._looked_at < LOOK_SECONDS:
            return
        opened = self.opened
        path = opened.info.table_path
        if opened.info.is_partitioned():
            infos = self._run(opened.admin.list_partition_infos(path, None))
            found: dict[int | None, str | None] = {info.partition_id: info.partition_name for info in infos}
        else:
            found = {None: None}
        # This comes after the partitions: if the table still has its id, the partitions are those of this table.
        self._check_identity()
        gone = {each: name for each, name in self._partitions.items() if each not in found}
        self._just_gone = gone or self._just_gone
        self._partitions = found
        self._looked_at = time.monotonic()

    def _check_identity(self) -> None:
        path = self.opened.info.table_path
        try:
            found = self._run(self.opened.admin.get_table_info(path))
        except FlussError as error:
            raise dropped_table_error(str(path), error) from error
        if found.table_id != self.table_id:
            raise other_table_error(str(path), self.table_id, found.table_id)

    @property
    def partitions(self) -> Mapping[int | None, str | None]:
        """Partition ids with their names, as of the last update; `{None: None}` for a table without partitions."""
        return self._partitions

    def keys(self) -> list[BucketKey]:
        """All buckets, as of the last update."""
        count = self.opened.info.num_buckets
        return [(partition_id, bucket) for partition_id in self._partitions for bucket in range(count)]

    # ---- offsets ----

    def latest(self) -> dict[BucketKey, int]:
        """The present end of the log of every bucket."""
        return self._offsets_of_all(TableAccess.latest)

    def earliest(self) -> dict[BucketKey, int]:
        """The first readable offset of every bucket."""
        return self._offsets_of_all(TableAccess.earliest)

    def at(self, timestamp_ms: int) -> dict[BucketKey, int]:
        """The offset of the first row of every bucket at or after a time; the end for times in the future."""
        return self._offsets_of_all(lambda table, buckets: table.offsets_at(buckets, timestamp_ms))

    def _look_if_possible(self) -> None:
        """Update the partitions. Keep the known ones if the coordinator is down: the tablets still serve rows."""
        try:
            self.look()
        except FlussError as error:
            if not is_outage(error) or self._looked_at == float("-inf"):
                raise
            logger.warning("the partitions of %s cannot be updated now: %s", self.opened.info.table_path, error)
            self._looked_at = time.monotonic()

    def _offsets_of_all(self, ask: AskOffsets) -> dict[BucketKey, int]:
        self._look_if_possible()
        for _ in range(MAX_VANISHING_ROUNDS):
            keys = self.keys()
            try:
                return self._offsets(keys, ask)
            except FlussError as error:
                last = error
            # If this gets no answer either, it is an outage. A dropped or recreated table gets a clear error.
            self.look(now=True)
            if self.keys() == keys:
                break
        raise dropped_table_error(str(self.opened.info.table_path), last)

    def _offsets(self, keys: list[BucketKey], ask: AskOffsets) -> dict[BucketKey, int]:
        if not keys:
            return {}
        buckets = [TableBucket.with_partition(self.table_id, *key) for key in keys]
        found = self._run(ask(self.opened.access, buckets))
        return {(bucket.partition_id, bucket.bucket_id): found[bucket] for bucket in buckets}

    def row_bytes(self, positions: Mapping[BucketKey, int]) -> dict[BucketKey, float]:
        """The average size of a stored row around these offsets; buckets without an answer are left out."""
        buckets = {TableBucket.with_partition(self.table_id, *key): offset for key, offset in positions.items()}
        sizes = self._run(self.opened.access.row_bytes(buckets))
        return {(bucket.partition_id, bucket.bucket_id): size for bucket, size in sizes.items()}

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self.opened.run(coroutine, ANSWER_SECONDS)

    def names_of(self, keys: Iterable[BucketKey]) -> dict[BucketKey, str]:
        """Names of buckets for messages, including those of recently dropped partitions."""
        known = {**self._just_gone, **self._partitions}
        return {key: bucket_text(key, known.get(key[0])) for key in keys}


def bucket_text(key: BucketKey, partition_name: str | None = None) -> str:
    """The name of a bucket for messages."""
    partition_id, bucket = key
    if partition_id is None:
        return f"bucket {bucket}"
    name = f"{partition_name} (id {partition_id})" if partition_name is not None else f"id {partition_id}"
    return f"bucket {bucket} of partition {name}"


def other_table_error(path: str, wanted_id: int, found_id: int) -> FlussError:
    """The error for a table that is no longer the one in the checkpoint."""
    return FlussError(
        f"table {path} now has id {found_id}, but this query reads the one with id {wanted_id}: it was dropped and "
        "created again, and offsets of the old table are invalid in the new one. Start with a new checkpoint",
        ErrorCode.TABLE_NOT_EXIST,
    )


def dropped_table_error(path: str, error: FlussError) -> FlussError:
    """A clearer error if the table does not exist; other errors are returned unchanged."""
    if error.error_code != ErrorCode.TABLE_NOT_EXIST:
        return error
    return FlussError(
        f"table {path} was dropped while a query was reading it: stop the query",
        ErrorCode.TABLE_NOT_EXIST,
    )
