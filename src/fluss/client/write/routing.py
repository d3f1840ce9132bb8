"""Choosing the partition and bucket of rows.

With bucket keys, a hash of the key columns decides (`fluss.codec.keys.bucketing`, as in the Java client, by the table's
lake format; or with `tail` as in pyfluss). Without, rows stick to one bucket until `batch_bytes` went there and then
move to another one (sticky), or cycle through all buckets one by one (round_robin). Every partition has its own
assigner. Whole record batches are divided at once; rows of a bucket keep their order.

`Router` may be used by several threads at once: a lock protects the small state of keyless assigners.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fluss.client.fitting.places import PlaceRule, PlaceRules, key_rule, partition_rule
from fluss.client.net.metadata import ClientTable
from fluss.codec.keys.bucketing import BUCKET_OF_LAKE_FORMAT, BUCKETS_OF_LAKE_FORMAT, Tail
from fluss.codec.keys.encoding import NO_BYTES, KeyEncoding, KeyPlan, encode_key, encode_keys, key_plan
from fluss.codec.keys.partition_names import check_partition_value, partition_names, split_partition_name
from fluss.codec.rows.arrow_values import column_to_values
from fluss.codec.rows.values import RowValueError
from fluss.errors import ErrorCode, FlussError
from fluss.model.types import DataType

if TYPE_CHECKING:
    from fluss.codec.rows.varint import Numbers

LAKE_FORMAT_PROPERTY = "table.datalake.format"
KV_FORMAT_VERSION_PROPERTY = "table.kv.format-version"
# Assigners of the partitions not written for longest are dropped; a new one only chooses a bucket again.
MAX_PARTITION_ASSIGNERS = 10_000
# Hashing all keys at once has a fixed cost of some 200 us; one key takes 10 to 20 us.
MAX_ROWS_HASHED_ONE_BY_ONE = 12

# The assumed number of partitions of rows that are written together.
USUAL_PARTITIONS_AT_ONCE = 4

Buckets = Callable[[str | None], Sequence[int]]
Indices: TypeAlias = "Numbers"

_NO_BUCKET = "a bucket key must not be empty with Iceberg keys"


class Routed(NamedTuple):
    """Rows for one bucket."""

    partition_name: str | None
    bucket_id: int
    rows: pa.RecordBatch


class StickyAssigner:
    """Assigns all rows to one bucket until it got enough, then to another one, chosen at random."""

    def __init__(self, batch_bytes: int) -> None:
        self._batch_bytes = batch_bytes
        self._bucket: int | None = None
        self._used_bytes = 0

    def assign(self, rows: int, size_bytes: int, available: Callable[[], Sequence[int]]) -> int:
        """One bucket for all these rows."""
        if self._bucket is None or self._used_bytes >= self._batch_bytes:
            buckets = available()
            others = [bucket for bucket in buckets if bucket != self._bucket] or buckets
            self._bucket = random.choice(others)
            self._used_bytes = 0
        self._used_bytes += size_bytes
        return self._bucket


class RoundRobinAssigner:
    """Assigns each row to the next bucket."""

    def __init__(self) -> None:
        self._next = random.getrandbits(31)

    def assign(self, rows: int, available: Sequence[int]) -> Indices:
        """The bucket of every row."""
        numbers = (self._next + np.arange(rows)) % len(available)
        self._next = (self._next + rows) & 0x7FFFFFFF
        return np.asarray(available, np.int32)[numbers]


def bucket_key_plan(table: ClientTable) -> KeyPlan | None:
    """The key plan of a table; None for a log table without bucket keys."""
    descriptor = table.descriptor
    if not descriptor.bucket_keys and not table.has_primary_key:
        return None
    lake_format = table.property(LAKE_FORMAT_PROPERTY)
    version = int(table.property(KV_FORMAT_VERSION_PROPERTY) or 1) if table.has_primary_key else 1
    primary_key = table.schema.primary_key
    return key_plan(primary_key, descriptor.partition_keys, descriptor.bucket_keys, lake_format, version)


def required_columns(table: ClientTable) -> tuple[str, ...]:
    """Columns that must not be null because they decide where a row goes, whatever their type."""
    plan = bucket_key_plan(table)
    nulls_have_no_key = plan is not None and plan.bucket_encoding in (KeyEncoding.COMPACTED, KeyEncoding.ICEBERG)
    return (*table.descriptor.partition_keys, *(table.descriptor.bucket_keys if nulls_have_no_key else ()))


def place_rules(table: ClientTable) -> PlaceRules:
    """The rules of columns whose values may have no partition or bucket, as `Router.route` would find."""
    rules = key_rules(table, bucket_key_plan(table))
    for name in table.descriptor.partition_keys:
        _add_rule(rules, name, partition_rule(_type_of(table, name)))
    return rules


def key_rules(table: ClientTable, plan: KeyPlan | None) -> dict[str, list[PlaceRule]]:
    """The rules of columns whose values may have no key bytes or bucket."""
    rules: dict[str, list[PlaceRule]] = {}
    if plan is None:
        return rules
    if table.has_primary_key:
        for name in plan.primary_columns:
            count = len(plan.primary_columns)
            _add_rule(rules, name, key_rule(_type_of(table, name), plan.primary_encoding, count, NO_BYTES))
    if table.bucket_count > 1 and not (table.has_primary_key and plan.bucket_key_is_primary_key):
        for name in plan.bucket_columns:
            count = len(plan.bucket_columns)
            _add_rule(rules, name, key_rule(_type_of(table, name), plan.bucket_encoding, count, _NO_BUCKET))
    return rules


def _type_of(table: ClientTable, name: str) -> DataType:
    return table.schema.data_types[table.schema.position(name)]


def _add_rule(rules: dict[str, list[PlaceRule]], name: str, rule: PlaceRule | None) -> None:
    if rule is not None:
        rules.setdefault(name, []).append(rule)


class Router:
    """Divides record batches of one table. `available(partition name)` returns the buckets for keyless rows."""

    def __init__(
        self, table: ClientTable, assigner: str, batch_bytes: int, available: Buckets, tail: Tail = "java"
    ) -> None:
        schema, descriptor = table.schema, table.descriptor
        self._table = table
        self._tail = tail
        self._plan = bucket_key_plan(table)
        self._key_positions = [schema.position(name) for name in (self._plan.bucket_columns if self._plan else ())]
        self._key_types = [schema.data_types[position] for position in self._key_positions]
        self._partition_positions = [schema.position(name) for name in descriptor.partition_keys]
        self._partition_types = [schema.data_types[position] for position in self._partition_positions]
        self._sticky = assigner == "sticky"
        self._batch_bytes = batch_bytes
        self._available = available
        self._lock = threading.Lock()
        self._assigners: dict[str | None, StickyAssigner | RoundRobinAssigner] = {}

    @property
    def spread(self) -> int:
        """The likely number of buckets of rows that arrive together."""
        divides = self._plan is not None or not self._sticky
        buckets = self._table.bucket_count if divides else 1
        return buckets * (USUAL_PARTITIONS_AT_ONCE if self._partition_positions else 1)

    def route(self, batch: pa.RecordBatch) -> list[Routed]:
        """Divide the rows of a batch by partition and bucket. `FlussError` for rows that cannot have one."""
        if not batch.num_rows:
            return []
        try:
            if not self._partition_positions:
                return self._route_partition(None, batch)
            return [piece for name, rows in self._by_partition(batch) for piece in self._route_partition(name, rows)]
        except RowValueError as error:
            raise FlussError(f"the rows do not fit table {self._table.path}: {error}") from None

    def _by_partition(self, batch: pa.RecordBatch) -> list[tuple[str, pa.RecordBatch]]:
        columns = [batch.column(position) for position in self._partition_positions]
        names = partition_names(columns, self._partition_types).dictionary_encode()
        distinct: list[str] = names.dictionary.to_pylist()
        for name in distinct:
            self.check_name(name)
        if len(distinct) == 1:
            return [(distinct[0], batch)]
        return [
            (distinct[number], rows) for number, rows in split_rows(batch, np.asarray(names.indices), len(distinct))
        ]

    def check_name(self, name: str) -> None:
        """Raise for a partition name that cannot exist: a request for it would be in vain."""
        try:
            texts = split_partition_name(name, self._table.descriptor.partition_keys).values()
        except ValueError as error:
            raise self._no_partition(name, error) from None
        for text in texts:
            self._check_value(text, name)

    def _check_value(self, text: str, name: str) -> None:
        try:
            check_partition_value(text, creating=False)
        except ValueError as error:
            raise self._no_partition(name, error) from None

    def _no_partition(self, name: str, error: ValueError) -> FlussError:
        text = f"partition {name!r} of table {self._table.path} cannot exist: {error}"
        return FlussError(text, ErrorCode.PARTITION_SPEC_INVALID_EXCEPTION)

    def _route_partition(self, name: str | None, batch: pa.RecordBatch) -> list[Routed]:
        bucket_count = self._table.bucket_count
        if bucket_count == 1:  # nulls in key columns were refused earlier, see `required_columns`
            return [Routed(name, 0, batch)]
        if self._plan is not None:
            buckets = self._hash(batch)
        else:
            with self._lock:
                assigner = self._assigner(name)
                if isinstance(assigner, StickyAssigner):
                    bucket = assigner.assign(batch.num_rows, batch.nbytes, lambda: self._available(name))
                    return [Routed(name, bucket, batch)]
                buckets = assigner.assign(batch.num_rows, self._available(name))
        return [Routed(name, bucket, rows) for bucket, rows in split_rows(batch, buckets, bucket_count)]

    def _hash(self, batch: pa.RecordBatch) -> Indices:
        assert self._plan is not None
        types, encoding, bucketing = self._key_types, self._plan.bucket_encoding, self._plan.bucketing
        bucket_count = self._table.bucket_count
        columns = [batch.column(position) for position in self._key_positions]
        if batch.num_rows <= MAX_ROWS_HASHED_ONE_BY_ONE:
            bucket_of = BUCKET_OF_LAKE_FORMAT[bucketing]
            rows = zip(*map(column_to_values, columns, types), strict=True)
            return np.asarray([bucket_of(encode_key(row, types, encoding), bucket_count, self._tail) for row in rows])
        keys = encode_keys(columns, types, encoding, batch.num_rows)
        return BUCKETS_OF_LAKE_FORMAT[bucketing](keys, bucket_count, self._tail)

    def _assigner(self, name: str | None) -> StickyAssigner | RoundRobinAssigner:
        assigner = self._assigners.pop(name, None)
        if assigner is None:
            assigner = StickyAssigner(self._batch_bytes) if self._sticky else RoundRobinAssigner()
            if len(self._assigners) >= MAX_PARTITION_ASSIGNERS:
                del self._assigners[next(iter(self._assigners))]
        self._assigners[name] = assigner  # the newest is last
        return assigner


def split_rows(batch: pa.RecordBatch, numbers: Indices, count: int) -> list[tuple[int, pa.RecordBatch]]:
    """The rows of each number, in their order: one stable sort and one gather for all of them."""
    sizes = np.bincount(numbers, minlength=count)
    present = np.flatnonzero(sizes)
    if len(present) == 1:
        return [(int(present[0]), batch)]
    small = np.uint8 if count <= 256 else np.uint16 if count <= 65536 else np.uint32
    order = np.argsort(numbers.astype(small), kind="stable")
    sorted_rows = _take(batch, order)
    ends = np.cumsum(sizes)
    return [
        (int(number), sorted_rows.slice(int(ends[number] - sizes[number]), int(sizes[number]))) for number in present
    ]


def _take(batch: pa.RecordBatch, order: Indices) -> pa.RecordBatch:
    try:
        return batch.take(pa.array(order))
    except pa.ArrowNotImplementedError:  # older releases cannot gather every nested type in a batch
        columns = [pc.take(column, pa.array(order)) for column in batch.columns]
        return pa.RecordBatch.from_arrays(columns, schema=batch.schema)
