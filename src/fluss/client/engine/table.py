"""`TableAccess`: an open table as Spark and the lake read it.

It pairs the description of a table, which pickles, with a connection, which does not. `read_log`, `read_state` and
`read_changed_keys` block while they are iterated; each iteration belongs to one thread. Coroutines are for
`Engine.run`. Everything that reads is loaded at first use: a task that only writes loads no scanner.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fluss.client.calls.bucket_offsets import EARLIEST, LATEST, list_bucket_offsets, list_offsets_at
from fluss.client.calls.row_counts import count_bucket_rows
from fluss.client.engine.engine import Engine, session_of
from fluss.client.net.metadata import ClientTable
from fluss.lazy_imports import import_lock
from fluss.model import paths
from fluss.model.descriptor import TableDescriptor
from fluss.model.paths import TablePath
from fluss.model.schema import Schema
from fluss.values.basic import TableBucket

if TYPE_CHECKING:
    import pyarrow as pa

    from fluss.client.decode.scan_plan import ScanPlan
    from fluss.client.keys.lookup_keys import KeyReader
    from fluss.client.scan.log_range import LogRange
    from fluss.client.state.bucket_state import BucketState
    from fluss.client.state.key_ranges import BucketPieces, KeyRange
    from fluss.codec.rows.columns import RowFormat

Offsets = dict[TableBucket, int]


class TableAccess:
    """Immutable, used by any thread. `fluss.api.table.access_of` makes one of a `FlussTable`."""

    def __init__(self, engine: Engine, description: ClientTable) -> None:
        self.engine = engine
        self.description = description
        self._session = session_of(engine)

    @classmethod
    def open(cls, engine: Engine, path: TablePath, timeout_seconds: float | None = None) -> TableAccess:
        """Open a table with its current description. Blocks; FlussError 7 if the table does not exist."""
        return cls(engine, engine.run(engine.describe(path), timeout_seconds))

    # ---- what the table is ----

    @property
    def path(self) -> TablePath:
        """Database and name."""
        return self.description.path

    @property
    def table_id(self) -> int:
        """Unique in the cluster, also over time."""
        return self.description.table_id

    @property
    def descriptor(self) -> TableDescriptor:
        """Keys, buckets and properties."""
        return self.description.descriptor

    @property
    def schema(self) -> Schema:
        """The schema of the table."""
        return self.description.schema

    @property
    def bucket_count(self) -> int:
        """Buckets of the table, or of each partition."""
        return self.description.bucket_count

    @property
    def is_partitioned(self) -> bool:
        """True if it has partitions."""
        return self.description.is_partitioned

    @property
    def has_primary_key(self) -> bool:
        """True for a primary-key table."""
        return self.description.has_primary_key

    @property
    def row_format(self) -> RowFormat | None:
        """How rows are stored; None for the Arrow batches of a log table."""
        with import_lock:
            from fluss.client.send.log_encoding import log_row_format
            from fluss.client.write.kv_encoding import kv_row_format

        return kv_row_format(self.description) if self.has_primary_key else log_row_format(self.description)

    @property
    def required_columns(self) -> tuple[str, ...]:
        """Columns that must not be null because they decide where a row goes."""
        with import_lock:
            from fluss.client.write.routing import required_columns

        return required_columns(self.description)

    # ---- rows ----

    def read_log(
        self,
        ranges: Mapping[Any, tuple[int, int]],
        plan: ScanPlan | None = None,
        *,
        patience_seconds: float | None = None,
    ) -> LogRange:
        """The rows of `{TableBucket: (start, stop)}`, for a `with` block: iterate over it once."""
        with import_lock:
            from fluss.client.decode.scan_plan import ScanPlan
            from fluss.client.scan.log_range import LogRange

        wanted = ScanPlan() if plan is None else plan
        return LogRange(self._session, self.description, wanted, ranges, patience_seconds=patience_seconds)

    def read_state(
        self,
        bucket: paths.TableBucket,
        offset: int | None = None,
        *,
        patience_seconds: float | None = None,
        snapshot_will_do: bool = False,
        wanted: Iterable[int] | None = None,
        key_range: KeyRange | None = None,
    ) -> BucketState:
        """The rows of a primary-key bucket as they are now, or were at an offset: iterate over it once."""
        with import_lock:
            from fluss.client.state.bucket_state import BucketState
            from fluss.client.state.key_ranges import ALL_KEYS

        return BucketState(
            self._session,
            self.description,
            bucket,
            offset,
            patience_seconds=patience_seconds,
            snapshot_will_do=snapshot_will_do,
            wanted=wanted,
            key_range=ALL_KEYS if key_range is None else key_range,
        )

    def read_changed_keys(
        self,
        bucket: paths.TableBucket,
        start: int,
        stop: int,
        *,
        timestamps: tuple[int | None, int | None] = (None, None),
        patience_seconds: float | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """The last row of each key that changed in `[start, stop)` and was not deleted at its end.

        `timestamps` narrows it to changes that were committed from the first time on and before the second one.
        """
        with import_lock:
            from fluss.client.state.bucket_state import fold_range

        return fold_range(
            self._session,
            self.description,
            bucket,
            start,
            stop,
            timestamps=timestamps,
            patience_seconds=patience_seconds,
        )

    # ---- keys ----

    def key_reader(self) -> KeyReader:
        """Turns primary keys into stored keys and their places."""
        with import_lock:
            from fluss.client.keys.lookup_keys import primary_key_reader

        return primary_key_reader(self.description, self._session.config.bucket_hash)

    def prefix_reader(self, columns: Sequence[str]) -> KeyReader:
        """Turns prefixes of the key into stored prefixes; `FlussError` when the table or the columns have none."""
        with import_lock:
            from fluss.client.keys.lookup_keys import prefix_reader

        return prefix_reader(self.description, columns, self._session.config.bucket_hash)

    def key_pieces(
        self, buckets: Iterable[TableBucket], piece_bytes: int, piece_rows: int | None
    ) -> Coroutine[Any, Any, dict[TableBucket, BucketPieces]]:
        """Where buckets can be cut by key. Buckets whose server cannot tell, or not now, are left out."""
        with import_lock:
            from fluss.client.state.key_ranges import split_buckets

        return split_buckets(self._session.cluster, self.description, buckets, piece_bytes, piece_rows)

    # ---- partitions, offsets and sizes: coroutines ----

    async def list_partitions(self) -> dict[int | None, str | None]:
        """Names of the partitions by their ids; one without id and name for a table that has none."""
        if not self.is_partitioned:
            return {None: None}
        infos = await self.engine.admin.list_partition_infos(self.path, None)
        return {info.partition_id: info.partition_name for info in infos}

    async def earliest(self, buckets: Sequence[TableBucket]) -> Offsets:
        """The first offset of each bucket that can still be read."""
        return await list_bucket_offsets(self._session.cluster, self.path, buckets, EARLIEST)

    async def latest(self, buckets: Sequence[TableBucket]) -> Offsets:
        """The end of the log of each bucket."""
        return await list_bucket_offsets(self._session.cluster, self.path, buckets, LATEST)

    async def offsets_at(self, buckets: Sequence[TableBucket], timestamp_ms: int) -> Offsets:
        """At or before the first row with this commit time or a later one; the end of the log for times to come."""
        return await list_offsets_at(self._session.cluster, self.path, buckets, timestamp_ms)

    async def row_counts(self, buckets: Sequence[TableBucket]) -> dict[TableBucket, int] | None:
        """Rows of a log table, keys of a primary-key table; None if a server cannot tell."""
        return await count_bucket_rows(self._session.cluster, self.path, buckets)

    def row_bytes(self, positions: Mapping[TableBucket, int]) -> Coroutine[Any, Any, dict[TableBucket, float]]:
        """Bytes per row at these offsets. Buckets whose server cannot tell now are left out."""
        with import_lock:
            from fluss.client.scan.row_sizes import sample_row_bytes

        return sample_row_bytes(self._session.cluster, self.path, positions)

    async def find_leaders(self, partition_ids: Iterable[int | None]) -> None:
        """Learn the leaders of several partitions with one question, instead of one each."""
        ids = sorted(each for each in partition_ids if each is not None)
        if ids:
            await self._session.cluster.refresh(tables=[self.path], partition_ids=ids)

    def is_led(self, bucket: TableBucket) -> bool:
        """True if the leader of a bucket is known, without asking. Called on the I/O thread."""
        return self._session.cluster.leader_node(bucket) is not None
