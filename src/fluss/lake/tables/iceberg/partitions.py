"""Partition values of lake files, converted from the name of a Fluss partition and a bucket, and back."""

from __future__ import annotations

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema as IcebergSchema
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.typedef import Record

from fluss.codec.keys.partition_names import partition_name, split_partition_name
from fluss.codec.keys.partition_values import partition_value
from fluss.errors import ErrorCode, FlussError
from fluss.lake.tables.iceberg.types import from_iceberg_type
from fluss.lake.tables.interface.format import BUCKET_COLUMN
from fluss.model.types import DataType


class PartitionLayout:
    """The partition spec of one of our tables: identity of the partition keys, then the bucket."""

    def __init__(self, spec: PartitionSpec, schema: IcebergSchema) -> None:
        self.keys: list[str] = []
        self._types: list[DataType] = []
        self.is_ours = bool(spec.fields)
        for index, field in enumerate(spec.fields):
            column = schema.find_field(field.source_id)
            is_last = index == len(spec.fields) - 1
            is_identity = isinstance(field.transform, IdentityTransform)
            if is_last:
                is_bucket = isinstance(field.transform, BucketTransform)
                self.is_ours &= is_bucket or (is_identity and column.name == BUCKET_COLUMN)
            else:
                self.is_ours &= is_identity
                self.keys.append(column.name)
                self._types.append(from_iceberg_type(column.field_type))

    def record(self, name: str | None, bucket_id: int) -> Record:
        """The partition values of files with rows of this partition and bucket."""
        if not self.is_ours:
            raise FlussError(
                "the partitions of the lake table were changed from outside; a tiered table must keep the partition "
                "keys and the bucket as its partitions",
                ErrorCode.INVALID_TABLE_EXCEPTION,
            )
        if (name is not None) != bool(self.keys):
            shown = ", ".join(self.keys) or "nothing"
            raise FlussError(f"partition {name!r} does not fit the lake table, which is partitioned by {shown}")
        texts = split_partition_name(name, self.keys) if name is not None else {}
        values = [partition_value(texts[key], kind) for key, kind in zip(self.keys, self._types, strict=True)]
        return Record(*values, bucket_id)

    def names(self, record: Record) -> tuple[str | None, int | None]:
        """Partition name and bucket of a file; the bucket is None if the file has another layout."""
        if not self.is_ours:
            return None, None
        values = [record[index] for index in range(len(self.keys))]
        name = partition_name(values, self._types) if self.keys else None
        return name, record[len(self.keys)]
