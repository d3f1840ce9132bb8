"""Requests, parts of requests and table descriptors as clients send them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from fluss.protocol import fluss_api_pb2 as pb


def int_column(name: str, **more: Any) -> dict[str, Any]:
    """An INT column in the JSON form of a table descriptor."""
    return {"name": name, "data_type": {"type": "INTEGER"}, **more}


def text_column(name: str, **more: Any) -> dict[str, Any]:
    """A STRING column in the JSON form of a table descriptor."""
    return {"name": name, "data_type": {"type": "STRING"}, **more}


def table_document(
    columns: Sequence[Mapping[str, Any]] = (),
    *,
    primary_key: Sequence[str] = (),
    partition_key: Sequence[str] = (),
    bucket_key: Sequence[str] = (),
    bucket_count: int | None = None,
    properties: Mapping[str, str] | None = None,
    custom_properties: Mapping[str, str] | None = None,
    comment: str | None = None,
    schema: Mapping[str, Any] | None = None,
) -> bytes:
    """A table descriptor as a client sends it."""
    node: dict[str, Any] = {"version": 1, "schema": {"version": 1, "columns": list(columns or [int_column("a")])}}
    if primary_key:
        node["schema"]["primary_key"] = list(primary_key)
    node["schema"].update(schema or {})
    node |= {"partition_key": list(partition_key), "bucket_key": list(bucket_key)}
    if bucket_count is not None:
        node["bucket_count"] = bucket_count
    if comment is not None:
        node["comment"] = comment
    node |= {"properties": dict(properties or {}), "custom_properties": dict(custom_properties or {})}
    return json.dumps(node).encode()


def path(name: str, database: str = "fluss") -> pb.PbTablePath:
    """The message for the path of a table."""
    return pb.PbTablePath(database_name=database, table_name=name)


def spec(**values: str) -> pb.PbPartitionSpec:
    """The message for the values of partition columns."""
    return pb.PbPartitionSpec(
        partition_key_values=[pb.PbKeyValue(key=key, value=value) for key, value in values.items()]
    )


def create_partition(name: str, ignore: bool = False, **values: str) -> pb.CreatePartitionRequest:
    """A CREATE_PARTITION request."""
    return pb.CreatePartitionRequest(table_path=path(name), partition_spec=spec(**values), ignore_if_not_exists=ignore)


def drop_partition(name: str, ignore: bool = False, **values: str) -> pb.DropPartitionRequest:
    """A DROP_PARTITION request."""
    return pb.DropPartitionRequest(table_path=path(name), partition_spec=spec(**values), ignore_if_not_exists=ignore)


def alter_properties(name: str, changes: Mapping[str, str | None], **more: Any) -> pb.AlterTableRequest:
    """An ALTER_TABLE request; None deletes a key."""
    return pb.AlterTableRequest(
        table_path=path(name),
        ignore_if_not_exists=False,
        config_changes=[config_change(key, value) for key, value in changes.items()],
        **more,
    )


def config_change(key: str, value: str | None, operation: int | None = None) -> pb.PbAlterConfig:
    """A change of one option: by default SET, or DELETE if the value is None."""
    return pb.PbAlterConfig(
        config_key=key, config_value=value, op_type=operation if operation is not None else int(value is None)
    )
