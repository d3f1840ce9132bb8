"""Creating, changing and loading Iceberg tables: the catalog side of the lake."""

from __future__ import annotations

from collections.abc import Sequence

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema as IcebergSchema
from pyiceberg.table import Table
from pyiceberg.types import NestedField

from fluss.errors import ErrorCode, FlussError
from fluss.lake.tables.iceberg.catalog import catalog_errors
from fluss.lake.tables.iceberg.schema import (
    added_field_type,
    fixed_properties,
    lake_properties,
    lake_schema,
    lake_user_properties,
    partition_spec,
    sort_order,
    user_properties,
)
from fluss.lake.tables.iceberg.table import IcebergTable
from fluss.lake.tables.iceberg.types import same_field, same_type
from fluss.lake.tables.iceberg.write_properties import check_write_properties
from fluss.lake.tables.interface.format import BUCKET_COLUMN, SYSTEM_COLUMNS, LakeTableSpec, RegisteredSnapshot
from fluss.model.paths import TablePath
from fluss.model.schema import Column

# How often a change of a table is tried, because tiering services may commit to it at the same time.
CHANGE_ATTEMPTS = 10


class IcebergFormat:
    """A catalog of Iceberg tables; databases and tables have the same names as in Fluss. Any thread may use it."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog

    def create_table(self, spec: LakeTableSpec, must_be_empty: bool = True, may_lack_columns: bool = False) -> None:
        """Create the lake table and its database; an existing one is accepted if it passes `check_compatible`.

        `may_lack_columns`: the last columns may be missing in it; they are added then.
        """
        schema = lake_schema(spec)
        properties = lake_properties(spec)
        partitions = partition_spec(spec, schema)
        check_write_properties(properties)
        with catalog_errors(f"creating the lake table {spec.path}"):
            # Checked first: an attempt to create an existing table leaves a metadata file behind.
            if self.catalog.table_exists(identifier(spec.path)):
                self._adopt(spec, must_be_empty, may_lack_columns)
                return
            self._create_namespace(spec.path.database_name)
            try:
                self.catalog.create_table(
                    identifier(spec.path), schema, None, partitions, sort_order(schema), properties
                )
            except TableAlreadyExistsError:  # created by another process at the same time
                self._adopt(spec, must_be_empty, may_lack_columns)

    def _create_namespace(self, database_name: str) -> None:
        try:
            self.catalog.create_namespace((database_name,))
        except NamespaceAlreadyExistsError:
            return  # created for an earlier table, or by another process at the same time

    def _adopt(self, spec: LakeTableSpec, must_be_empty: bool, may_lack_columns: bool) -> None:
        """Use a table left by a failed attempt, by an earlier Fluss table, or prepared by a user."""
        self.check_compatible(spec, must_be_empty, may_lack_columns)
        table = self.catalog.load_table(identifier(spec.path))
        lacking = [
            column for column in spec.descriptor.schema.columns if column.name not in table.schema().column_names
        ]
        if lacking:
            self.add_columns(spec.path, lacking)
            table = table.refresh()
        wanted = lake_properties(spec)
        missing = {key: value for key, value in wanted.items() if key not in table.properties}
        missing |= {k: v for k, v in fixed_properties(spec).items() if table.properties.get(k) != v}
        missing.pop("format-version", None)  # not a property of an existing table
        if missing:
            with table.transaction() as transaction:
                transaction.set_properties(missing)

    def check_compatible(self, spec: LakeTableSpec, must_be_empty: bool, may_lack_columns: bool = False) -> None:
        """Raise code 54 unless the existing lake table fits this Fluss table; code 7 if there is none."""
        table = self._load(spec.path)
        with catalog_errors(f"checking the lake table {spec.path}"):
            reason = _difference(table, spec, may_lack_columns) or (_rows_reason(table) if must_be_empty else None)
        if reason is not None:
            raise FlussError(
                f"the lake table {spec.path} already exists, and {reason}; drop or rename it in the lake, "
                "or give the Fluss table another name",
                ErrorCode.LAKE_TABLE_ALREADY_EXIST,
            )

    def add_columns(self, path: TablePath, columns: Sequence[Column]) -> None:
        """Add nullable columns after those of the user; existing columns of the same type are left alone."""
        fields = [added_field_type(column) for column in columns]
        with catalog_errors(f"adding columns to the lake table {path}"):
            for attempts_left in reversed(range(CHANGE_ATTEMPTS)):
                try:
                    _add_missing(self._load(path), fields)
                except CommitFailedException:  # a tiering service commits at the same time; both can succeed
                    if not attempts_left:
                        raise
                else:
                    return

    def change_properties(self, before: LakeTableSpec, after: LakeTableSpec) -> None:
        """Set and remove `iceberg.*` properties; a removed one gets its default again. Can be repeated."""
        old, new = lake_user_properties(before), lake_user_properties(after)
        check_write_properties(new)
        removed = old.keys() - new.keys()
        with catalog_errors(f"changing properties of the lake table {after.path}"):
            for attempts_left in reversed(range(CHANGE_ATTEMPTS)):
                table = self._load(after.path)
                wanted = {key: value for key, value in new.items() if table.properties.get(key) != value}
                gone = [key for key in removed if key in table.properties]
                try:
                    with table.transaction() as transaction:
                        if wanted:
                            transaction.set_properties(wanted)
                        if gone:
                            transaction.remove_properties(*gone)
                except CommitFailedException:  # a tiering service commits at the same time
                    if not attempts_left:
                        raise
                else:
                    return

    def close(self) -> None:
        """Close the connections of the catalog."""
        self.catalog.close()

    def load(self, path: TablePath, registered: RegisteredSnapshot | None = None) -> IcebergTable:
        """Load the current table; code 7 if there is none."""
        return IcebergTable(self._load(path), registered)

    def _load(self, path: TablePath) -> Table:
        with catalog_errors(f"loading the lake table {path}"):
            try:
                return self.catalog.load_table(identifier(path))
            except NoSuchTableError:
                message = f"there is no lake table {path}; set 'table.datalake.enabled' to true to create it"
                raise FlussError(message, ErrorCode.TABLE_NOT_EXIST) from None


def _add_missing(table: Table, fields: Sequence[NestedField]) -> None:
    present = {field.name: field for field in table.schema().fields}
    for field in fields:
        if field.name in present and not same_field(present[field.name], field):
            raise FlussError(
                f"the lake table {'.'.join(table.name())} already has a column {field.name!r} of type "
                f"{_shown(present[field.name])}, but the new one is {_shown(field)}: use another name",
                ErrorCode.INVALID_ALTER_TABLE_EXCEPTION,
            )
    missing = [field for field in fields if field.name not in present]
    if not missing:
        return
    with table.update_schema() as update:
        for field in missing:
            update.add_column(field.name, field.field_type, field.doc)
            update.move_before(field.name, BUCKET_COLUMN)


def identifier(path: TablePath) -> tuple[str, str]:
    """The name of the lake table as a tuple, so that pyiceberg does not split it at a dot."""
    return (path.database_name, path.table_name)


def _difference(table: Table, spec: LakeTableSpec, may_lack_columns: bool) -> str | None:
    """The reason why the table cannot be the lake table of `spec`, or None."""
    wanted, present = lake_schema(spec), table.schema()
    differing = _differing_columns(present, wanted, may_lack_columns)
    if differing is not None:
        return differing
    if present.identifier_field_names() != wanted.identifier_field_names():
        return "its identifier fields are not the primary key"
    partitions = _named_partitions(table.spec(), present)
    if partitions != _named_partitions(partition_spec(spec, wanted), wanted):
        return f"it is partitioned by {', '.join(f'{how}({name})' for name, how in partitions) or 'nothing'}"
    present_order = [(present.find_column_name(f.source_id), str(f.direction)) for f in table.sort_order().fields]
    if present_order != [(wanted.find_column_name(f.source_id), str(f.direction)) for f in sort_order(wanted).fields]:
        return "its rows are sorted in another way"
    if table.metadata.format_version != 2:
        return f"it has format version {table.metadata.format_version} instead of 2"
    for key, value in user_properties(spec).items():
        if table.properties.get(key) != value:
            return f"its property {key!r} is {table.properties.get(key)!r} instead of {value!r}"
    return None


def _differing_columns(present: IcebergSchema, wanted: IcebergSchema, may_lack_columns: bool) -> str | None:
    names, fields = present.column_names, wanted.fields
    if may_lack_columns:
        users, ours = fields[: -len(SYSTEM_COLUMNS)], fields[-len(SYSTEM_COLUMNS) :]
        count = max(len(names) - len(ours), 0)
        fields = (*users[:count], *(field for field in users[count:] if field.required), *ours)
    if names != [field.name for field in fields]:
        lacking = [name for name in SYSTEM_COLUMNS if name not in names]
        return f"its columns are {', '.join(names)}" + (f" without {', '.join(lacking)}" if lacking else "")
    for one, other in zip(present.fields, fields, strict=True):
        if one.required != other.required or not same_type(one.field_type, other.field_type):
            return f"its column {one.name!r} is {_shown(one)} instead of {_shown(other)}"
    return None


def _shown(field: NestedField) -> str:
    return f"{field.field_type}{' (required)' if field.required else ''}"


def _named_partitions(partitions: PartitionSpec, schema: IcebergSchema) -> list[tuple[str | None, str]]:
    return [(schema.find_column_name(field.source_id), str(field.transform)) for field in partitions.fields]


def _rows_reason(table: Table) -> str | None:
    snapshot = table.current_snapshot()
    summary = snapshot.summary if snapshot is not None else None
    if snapshot is None or (summary is not None and summary.get("total-records") == "0"):
        return None
    return "it has rows"
