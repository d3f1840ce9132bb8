"""The plan of a write, made and checked before there are any rows.

Spark asks for a writer while it plans the query, so everything that can be known then is refused then: features that
the format does not support, missing or unknown columns, types that do not fit, a guarantee that the server cannot give.
The resulting `WritePlan` is all that tasks get; it can be pickled.

Columns are matched by name, as Spark does it: first exactly, then ignoring case. Whether a nullable column of the
DataFrame really has nulls is only known from the rows, so tasks check that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, NoReturn

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.types import NullType, StringType, StructField, StructType

from fluss.client.engine.admin import TableInfo
from fluss.codec.arrow.types import to_arrow_schema
from fluss.codec.rows.columns import RowFormat
from fluss.errors import FlussError
from fluss.model.schema import Column, Schema
from fluss.spark.convert.arrow import check_types, spark_arrow_schema
from fluss.spark.convert.column_names import chosen_columns, find_column
from fluss.spark.options.parsing import ClientOptions, FlussOptions
from fluss.spark.sessions.connection_cache import OpenTable, open_table
from fluss.spark.sessions.outage_retries import patiently, start_patience_seconds
from fluss.spark.write.delivery import Way, choose_way

CREATE_PARTITIONS_OPTION = "client.writer.dynamic-create-partition.enabled"

Kind = Literal["append", "upsert", "changes", "deletes"]
"""append: rows of a log table. upsert: whole or partial rows of a primary-key table. changes: such rows with their row
kinds. deletes: keys of rows to delete."""


@dataclass(frozen=True)
class WritePlan:
    """The plan of one write: `columns` are the columns to write, `positions` are their positions in the DataFrame.

    The types of the columns, `row_format` (None for logs of Arrow batches), `keys` and `required` decide which values
    fit.
    """

    options: FlussOptions
    table_id: int
    kind: Kind
    way: Way
    columns: Schema
    positions: tuple[int, ...]
    row_kind_position: int | None = None
    keys: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    row_format: RowFormat | None = None

    @property
    def table(self) -> str:
        """The table's name, for messages."""
        return str(self.options.table)

    @cached_property
    def target(self) -> pa.Schema:
        """The Arrow schema of the written rows."""
        return to_arrow_schema(self.columns)


def plan_write(options: FlussOptions, schema: StructType, *, overwrite: bool, is_stream: bool) -> WritePlan:
    """Plan the write of rows of this Spark schema; `FlussError` explains what does not fit and what to do."""
    _check_supported(options, overwrite=overwrite, is_stream=is_stream)
    options = replace(options, client=_creating_partitions(options.client))

    def planned() -> WritePlan:
        with open_table(options) as opened:
            return _Planner(options, opened, schema).plan()

    # Every micro-batch is planned again: a server that restarts at that moment must not end the query.
    is_batch_of_query = is_stream or options.write.transaction_batch is not None
    return patiently(planned, start_patience_seconds(options)) if is_batch_of_query else planned()


def _check_supported(options: FlussOptions, *, overwrite: bool, is_stream: bool) -> None:
    table = options.table
    if options.mode == "lake":
        raise FlussError(f"only tiering writes the lake table of {table}: write to the table itself")
    if options.mode in ("changelog", "binlog"):
        raise FlussError(
            f"the {options.mode} of table {table} cannot be written: write to the table, with the option rowKindColumn "
            "for changes"
        )
    if overwrite and is_stream:
        raise FlussError(
            f"output mode complete would replace table {table} with every batch, which is not supported: write to a "
            "primary-key table with outputMode('update') and foreachBatch(fluss.spark.foreach_batch(...)), or use "
            "outputMode('append')"
        )
    if overwrite:
        raise FlussError(
            f"mode overwrite is not supported for table {table}: use mode('append'); to start over, drop and create "
            "the table or its partition first; to remove rows of a primary-key table, write their keys with the option "
            "rowKindColumn"
        )


def _creating_partitions(client: ClientOptions) -> ClientOptions:
    """Set the option that creates missing partitions, unless the user has set it."""
    wanted = _plain(CREATE_PARTITIONS_OPTION)
    if any(_plain(key) == wanted for key, _ in client.settings):
        return client
    return replace(client, settings=(*client.settings, (CREATE_PARTITIONS_OPTION, "true")))


def _plain(key: str) -> str:
    return key.lower().replace(".", "-").replace("_", "-")


class _Planner:
    """Plans the write of rows with one DataFrame schema to one table."""

    def __init__(self, options: FlussOptions, opened: OpenTable, schema: StructType) -> None:
        self._options = options
        self._opened = opened
        self._info: TableInfo = opened.info
        self._schema = schema
        self._known = self._info.get_column_names()
        self._keys = self._info.get_primary_keys()
        self._automatic = self._info.get_schema().get_auto_increment_columns()
        self._row_kind_position = self._find_row_kind()

    def plan(self) -> WritePlan:
        found = self._found_columns()
        kind, written = self._kind_and_columns(found)
        columns = self._columns(kind, written)
        positions = tuple(found[name] for name in written)
        self._check_types(columns, positions)
        access = self._opened.access
        return WritePlan(
            options=self._options,
            table_id=self._info.table_id,
            kind=kind,
            way=choose_way(self._opened, self._options.write),
            columns=columns,
            positions=positions,
            row_kind_position=self._row_kind_position,
            keys=tuple(self._keys),
            required=tuple(self._keys) or access.required_columns,
            row_format=access.row_format,
        )

    def _columns(self, kind: Kind, written: Sequence[str]) -> Schema:
        schema = self._opened.access.schema
        columns = []
        for name in written:
            data_type = schema.columns[schema.position(name)].data_type
            # Rows that delete have values only for the key.
            may_be_null = kind == "changes" and name not in self._keys
            columns.append(Column(name, data_type.copy(True) if may_be_null else data_type))
        return Schema(tuple(columns))

    # ---- columns ----

    def _find_row_kind(self) -> int | None:
        name = self._options.write.row_kind_column
        if name is None:
            return None
        if not self._keys:
            self._refuse(
                f"option rowKindColumn={name!r} is for primary-key tables: rows of log tables can only be appended. "
                "Filter the rows and leave the option out"
            )
        position = self._position(name, self._schema.names, "option rowKindColumn")
        if position is None:
            self._refuse(f"the column of option rowKindColumn={name!r} is missing; the columns are {self._given()}")
        if not isinstance(self._schema.fields[position].dataType, (StringType, NullType)):
            found = self._schema.fields[position].dataType.simpleString()
            self._refuse(f"column {name!r} of option rowKindColumn must be a string such as '+I' or '-D', got {found}")
        return position

    def _found_columns(self) -> dict[str, int]:
        """The positions of those columns of the table that are in the DataFrame."""
        found: dict[str, int] = {}
        extra = []
        for position, name in enumerate(self._schema.names):
            known = self._position(name, self._known, "a column of the rows")
            if known is None:
                if position != self._row_kind_position:
                    extra.append(name)
            elif self._known[known] in found:
                self._refuse(f"column {self._known[known]!r} is duplicated: {self._given()}")
            else:
                found[self._known[known]] = position
        if extra:
            self._refuse(
                f"unknown columns {', '.join(map(repr, extra))}; its columns are {', '.join(self._known)}. Drop the "
                "unknown columns, or add them to the table"
            )
        for name in self._automatic:
            if name in found:
                self._refuse(f"the server sets the values of the auto-increment column {name!r}: drop the column")
        return found

    def _kind_and_columns(self, found: dict[str, int]) -> tuple[Kind, list[str]]:
        wanted = self._wanted()
        missing = [name for name in wanted if name not in found]
        has_kinds = self._row_kind_position is not None
        if missing and has_kinds and self._options.columns is None and set(found) == set(self._keys):
            return "deletes", list(self._keys)
        if missing:
            advice = (
                "name the columns to write with the option columns to leave the others as they are (null in new rows)"
                if self._keys
                else "name the columns to write with the option columns to have the others null"
            )
            self._refuse(f"the rows lack {', '.join(map(repr, missing))}: add them, or {advice}")
        if not self._keys:
            return "append", wanted
        return "changes" if has_kinds else "upsert", wanted

    def _wanted(self) -> list[str]:
        """The columns to write, in the order of the table."""
        columns = self._options.columns
        if columns is None:
            return [name for name in self._known if name not in self._automatic]
        try:
            wanted = set(chosen_columns(columns, self._known, "the table"))
        except FlussError as error:
            self._refuse(error.message)
        self._check_partial(wanted)
        return [name for name in self._known if name in wanted]

    def _check_partial(self, wanted: set[str]) -> None:
        without_key = [name for name in self._keys if name not in wanted]
        if without_key:
            self._refuse(f"option columns must include the primary key: add {', '.join(without_key)}")
        if wanted.intersection(self._automatic):
            self._refuse(f"option columns must not include auto-increment columns, got {self._automatic[0]!r}")
        for column in self._info.get_schema().columns:
            if column.name not in wanted and column.name not in self._automatic and not column.data_type.nullable:
                self._refuse(
                    f"option columns leaves out {column.name!r}, which is {column.data_type}: columns that are left "
                    "out must allow null"
                )

    # ---- types ----

    def _check_types(self, columns: Schema, positions: Sequence[int]) -> None:
        fields = []
        for column, position in zip(columns.columns, positions, strict=True):
            given = self._schema.fields[position]
            if isinstance(given.dataType, NullType) and not column.data_type.nullable:
                self._refuse(f"column {column.name!r} is NOT NULL, but null in all rows: give it values")
            fields.append(StructField(column.name, given.dataType, given.nullable))
        try:
            check_types(spark_arrow_schema(StructType(fields)), columns, self._options.nanos_as)
        except FlussError as error:
            self._refuse(error.message)
        except PySparkException as error:
            self._refuse(f"a column has a type that Spark cannot convert to Arrow, so cast or drop it: {error}")

    def _position(self, name: str, names: Sequence[str], what: str) -> int | None:
        try:
            return find_column(name, names, what)
        except FlussError as error:
            self._refuse(error.message)

    def _given(self) -> str:
        return ", ".join(self._schema.names)

    def _refuse(self, text: str) -> NoReturn:
        raise FlussError(f"the rows cannot be written to table {self._info.table_path}: {text}")
