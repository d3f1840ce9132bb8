"""Conversion of users' keys to key bytes, partition and bucket: one at a time, or column by column for many.

A key is a dict by column name, a list or tuple in the order of the key columns, or the value itself when there is one
key column. A key that does not fit raises `FlussError` before anything is sent. A value that no partition can have is
not an error: no row can exist, so the answer is "not found" (no place).

`KeyReader` is immutable after construction and may be used by any thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from fluss.client.fitting import FitRules, UnfitValueError
from fluss.client.fitting.base import shown
from fluss.client.input.arrow_input import ArrowInput, Source, column_fits
from fluss.client.input.frame_input import table_of_frame
from fluss.client.input.row_columns import ColumnMaker
from fluss.client.net.metadata import ClientTable
from fluss.client.write.kv_encoding import kv_row_format
from fluss.client.write.routing import key_rules
from fluss.codec.keys.bucketing import BUCKET_OF_LAKE_FORMAT, BUCKETS_OF_LAKE_FORMAT, Tail
from fluss.codec.keys.encoding import (
    NO_BYTES,
    KeyEncoding,
    KeyPlan,
    check_stored_keys,
    encode_key,
    encode_keys,
    key_plan,
)
from fluss.codec.keys.partition_names import SEPARATOR, check_partition_value, partition_name, partition_names
from fluss.codec.rows.arrow_values import column_to_values
from fluss.codec.rows.compacted import write_compacted_field
from fluss.codec.rows.values import RowValueError
from fluss.errors import ErrorCode, FlussError
from fluss.model.properties import DATALAKE_FORMAT, KV_FORMAT_VERSION
from fluss.model.schema import Schema

if TYPE_CHECKING:
    from fluss.codec.rows.varint import Int64s

# For these types the checked value is the logical value that the key encoders take.
_PLAIN_ROOTS = frozenset(
    {"BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "FLOAT", "DOUBLE", "CHAR", "STRING", "BINARY", "BYTES"}
)


class Place(NamedTuple):
    """Where the rows of a key are: the partition's name (None in an unpartitioned table) and the bucket."""

    partition_name: str | None
    bucket_id: int


class KeyGroup(NamedTuple):
    """Keys of one place: their positions among the given keys, and their bytes as a binary array."""

    place: Place
    positions: Int64s
    keys: pa.Array


def table_key_plan(table: ClientTable) -> KeyPlan:
    """The columns and encodings of the keys of a primary-key table."""
    descriptor = table.descriptor
    version = table.property(KV_FORMAT_VERSION) or "1"
    lake_format = table.property(DATALAKE_FORMAT)
    try:
        plan = key_plan(
            table.schema.primary_key, descriptor.partition_keys, descriptor.bucket_keys, lake_format, int(version)
        )
    except ValueError as error:
        raise FlussError(f"this client cannot encode the keys of table {table.path}: {error}") from None
    return plan


class KeyReader:
    """Keys of the columns `names`, of which `key_columns` are encoded with `encoding`; `tail` as in the writer."""

    def __init__(
        self,
        table: ClientTable,
        names: Sequence[str],
        key_columns: Sequence[str],
        encoding: KeyEncoding,
        plan: KeyPlan,
        tail: Tail = "java",
    ) -> None:
        self.names = tuple(names)
        self._path = table.path
        self._tail = tail
        schema = table.schema
        self._schema = Schema(tuple(schema.columns[schema.position(name)] for name in names))
        self._types = self._schema.data_types
        rules = FitRules(row_format=kv_row_format(table), is_key=True)
        places = key_rules(table, plan)
        self._checks = [fit.value for fit in column_fits(self._schema, rules, (), places)]
        self._is_plain = all(data_type.root in _PLAIN_ROOTS for data_type in self._types)
        self._maker = ColumnMaker(self._schema)
        self._input = ArrowInput(str(table.path), self._schema, self.names, rules, places=places)
        position = {name: index for index, name in enumerate(names)}
        self._key_positions = [position[name] for name in key_columns]
        self._key_types = [self._types[index] for index in self._key_positions]
        self._key_fields = list(zip(self._key_positions, self._key_types, strict=True))
        self._encoding = encoding
        same = tuple(key_columns) == plan.bucket_columns and encoding is plan.bucket_encoding
        self._bucket_positions = None if same else [position[name] for name in plan.bucket_columns]
        self._bucket_types = [self._types[position[name]] for name in plan.bucket_columns]
        self._bucket_encoding = plan.bucket_encoding
        self._bucket_of = BUCKET_OF_LAKE_FORMAT[plan.bucketing]
        self._buckets_of = BUCKETS_OF_LAKE_FORMAT[plan.bucketing]
        self._bucket_count = table.bucket_count
        self._partition_positions = [position[name] for name in table.descriptor.partition_keys]
        self._partition_types = [self._types[index] for index in self._partition_positions]

    # ---- one key ----

    def one(self, key: Any) -> tuple[Place | None, bytes]:
        """Place and bytes of a key; the place is None if no partition can have such a name."""
        values: Sequence[Any] = self._checked(key)
        try:
            if not self._is_plain:
                batch = self._maker.record_batch(list(values), [False] * len(values))
                columns = zip(batch.columns, self._types, strict=True)
                values = [column_to_values(column, data_type)[0] for column, data_type in columns]
            if self._encoding is KeyEncoding.COMPACTED:  # as in `encode_key`, without checks that were done already
                out = bytearray()
                for index, data_type in self._key_fields:
                    write_compacted_field(values[index], data_type, out)
                encoded = bytes(out)
            else:
                encoded = encode_key([values[index] for index in self._key_positions], self._key_types, self._encoding)
            bucket = 0
            if self._bucket_count > 1:
                bucket_key = encoded
                if self._bucket_positions is not None:
                    chosen = [values[index] for index in self._bucket_positions]
                    bucket_key = encode_key(chosen, self._bucket_types, self._bucket_encoding)
                bucket = self._bucket_of(bucket_key, self._bucket_count, self._tail)
            if not encoded:
                raise RowValueError(NO_BYTES)
            if not self._partition_positions:
                return Place(None, bucket), encoded
            name = partition_name([values[index] for index in self._partition_positions], self._partition_types)
            return (Place(name, bucket) if can_exist(name) else None), encoded
        except (RowValueError, pa.ArrowException) as error:
            raise self._refusal(str(error)) from None

    def _checked(self, key: object) -> list[Any]:
        checked = []
        for index, value in enumerate(self._listed(key)):
            if value is None:
                raise self._refusal(
                    f"column {self.names[index]!r} ({self._types[index]}) must not be null: pass a value"
                )
            try:
                checked.append(self._checks[index](value))
            except UnfitValueError as error:
                got = f"{shown(value)} ({type(value).__name__})"
                text = f"column {self.names[index]!r} expects {self._types[index]}, got {got}: {error}"
                raise self._refusal(text) from None
        return checked

    def _listed(self, key: object) -> Sequence[object]:
        names = self.names
        if isinstance(key, Mapping):
            if len(key) == len(names):
                try:
                    return [key[name] for name in names]
                except KeyError:
                    pass  # reported below, with both sides
            missing = [name for name in names if name not in key]
            if missing:
                raise self._refusal(f"it lacks {_quoted(missing)}; got {_quoted(key)}")
            surplus = [name for name in key if name not in names]
            raise self._refusal(f"it has columns that are not part of the key: {_quoted(surplus)}")
        if isinstance(key, (list, tuple)):
            if len(key) != len(names):
                raise self._refusal(f"it must have {len(names)} values, got {len(key)}")
            return key
        if len(names) == 1:
            return (key,)
        raise self._refusal(f"it must be a dict, list or tuple, got {type(key).__name__}")

    def _refusal(self, text: str) -> FlussError:
        return FlussError(
            f"invalid key for table {self._path}: {text}; the key columns are {_quoted(self.names)}",
            ErrorCode.CLIENT_ERROR,
        )

    # ---- many keys ----

    def batch_of_rows(self, keys: Iterable[Any]) -> pa.RecordBatch:
        """Keys in any of the accepted forms as one record batch."""
        flat: list[object] = []
        for index, key in enumerate(keys):
            try:
                flat += self._checked(key)
            except FlussError as error:
                raise FlussError(f"key {index}: {error.message}", error.error_code) from None
        try:
            return self._maker.record_batch(flat, [False] * len(self.names))
        except (pa.ArrowException, OverflowError) as error:
            raise self._refusal(str(error)) from None

    def table_of_frame(self, keys: Any) -> pa.Table:
        """A pandas data frame with the key columns, or an index of them, as an Arrow table."""
        return table_of_frame(self._input, keys, "lookup_many")

    def batch_of_arrow(self, keys: pa.RecordBatch | pa.Table) -> pa.RecordBatch:
        """An Arrow table or batch with the key columns, by name in any order, as one record batch."""
        missing = [name for name in self.names if name not in keys.schema.names]
        if missing:
            raise self._refusal(f"it lacks {_quoted(missing)}; got {_quoted(keys.schema.names)}")
        surplus = [name for name in keys.schema.names if name not in self.names]
        if surplus:
            raise self._refusal(f"it has columns that are not part of the key: {_quoted(surplus)}")
        source = Source(keys)
        if isinstance(keys, pa.Table):
            keys = keys.combine_chunks()
            batches = keys.to_batches()
            keys = batches[0] if batches else pa.RecordBatch.from_pylist([], keys.schema)
        return self._input.conform(keys, source)

    def groups(self, batch: pa.RecordBatch) -> list[KeyGroup]:
        """The keys of a batch by place, without those for which no partition can exist."""
        count = batch.num_rows
        if not count:
            return []
        try:
            columns = [batch.column(index) for index in self._key_positions]
            encoded = encode_keys(columns, self._key_types, self._encoding, count)
            if self._encoding is KeyEncoding.ICEBERG:
                check_stored_keys(encoded)
            buckets = np.zeros(count, np.int32)
            if self._bucket_count > 1:
                bucket_keys = encoded
                if self._bucket_positions is not None:
                    columns = [batch.column(index) for index in self._bucket_positions]
                    bucket_keys = encode_keys(columns, self._bucket_types, self._bucket_encoding, count)
                buckets = self._buckets_of(bucket_keys, self._bucket_count, self._tail)
            names, numbers = self._partitions(batch)
        except RowValueError as error:
            raise self._refusal(str(error)) from None
        codes = numbers.astype(np.int64) * self._bucket_count + buckets
        order = np.argsort(codes, kind="stable")
        found = []
        distinct, starts = np.unique(codes[order], return_index=True)
        ends = [*starts[1:].tolist(), count]
        for code, start, end in zip(distinct.tolist(), starts.tolist(), ends, strict=True):
            name = names[code // self._bucket_count]
            if name is not None and not can_exist(name):
                continue
            positions = order[start:end]
            keys = encoded if len(positions) == count else encoded.take(pa.array(positions))
            found.append(KeyGroup(Place(name, code % self._bucket_count), positions, keys))
        return found

    def _partitions(self, batch: pa.RecordBatch) -> tuple[list[str | None], Int64s]:
        if not self._partition_positions:
            return [None], np.zeros(batch.num_rows, np.int64)
        columns = [batch.column(index) for index in self._partition_positions]
        names = partition_names(columns, self._partition_types).dictionary_encode()
        return names.dictionary.to_pylist(), np.asarray(names.indices)


def can_exist(name: str) -> bool:
    """True if a partition may have this name."""
    try:
        for text in name.split(SEPARATOR):
            check_partition_value(text, creating=False)
    except ValueError:
        return False
    return True


def _quoted(names: Iterable[object]) -> str:
    return ", ".join(map(repr, names)) or "nothing"


def primary_key_reader(table: ClientTable, tail: Tail = "java") -> KeyReader:
    """The reader of keys for lookups of one row."""
    plan = table_key_plan(table)
    return KeyReader(table, table.schema.primary_key, plan.primary_columns, plan.primary_encoding, plan, tail)


def prefix_reader(table: ClientTable, names: Sequence[str], tail: Tail = "java") -> KeyReader:
    """The reader of keys for lookups by prefix; `FlussError` if table or columns do not allow them."""
    plan = table_key_plan(table)
    partition_keys = table.descriptor.partition_keys
    wanted = [*partition_keys, *plan.bucket_columns]
    if not plan.can_look_up_by_prefix:
        raise FlussError(
            f"table {table.path} cannot be looked up by prefix: its bucket key ({', '.join(plan.bucket_columns)}) must "
            f"be the first columns of its primary key ({', '.join(plan.primary_columns)}), but not all of them"
        )
    without_partitions = [name for name in names if name not in partition_keys]
    if without_partitions != list(plan.bucket_columns) or not set(partition_keys) <= set(names):
        raise FlussError(f"table {table.path} is looked up by the columns {wanted}, got {list(names)}")
    if len(set(names)) != len(names):
        raise FlussError(f"columns must not be duplicated, got {list(names)}")
    return KeyReader(table, names, plan.bucket_columns, plan.primary_encoding, plan, tail)
