"""The API for event loops: the same classes as in `fluss`, with scanner calls that are awaited.

Code that was written for the published client pyfluss 1.0 runs with only its import changed::

    import fluss.aio as fluss

One implementation serves both faces; the classes here differ from those of `fluss` only in what waits: `close`, the
calls of scanners, and `async for` over a scanner.
"""

from __future__ import annotations

import fluss as _fluss
from fluss.client.admin import FlussAdmin
from fluss.client.admin_calls import ConfigEntry
from fluss.client.awaitable import Closing
from fluss.client.connection import CLOSE_TIMEOUT_SECONDS, BaseConnection
from fluss.client.data_types import DataField, DataTypes
from fluss.client.databases import DatabaseDescriptor, DatabaseInfo
from fluss.client.descriptors import KvFormat, LogFormat, TableDescriptor
from fluss.client.schemas import Schema, SchemaInfo
from fluss.client.table import TableAppend
from fluss.client.table_info import TableInfo
from fluss.client.values import (
    EARLIEST_OFFSET,
    LATEST_OFFSET,
    ChangeType,
    LakeSnapshot,
    OffsetSpec,
    OffsetType,
    PartitionInfo,
    PartitionSpec,
    ServerNode,
    TableBucket,
    TablePath,
)
from fluss.config import Config
from fluss.errors import ErrorCode, FlussError

__all__ = [
    "EARLIEST_OFFSET",
    "LATEST_OFFSET",
    "ChangeType",
    "Config",
    "ConfigEntry",
    "DataField",
    "DataTypes",
    "DatabaseDescriptor",
    "DatabaseInfo",
    "ErrorCode",
    "FlussAdmin",
    "FlussConnection",
    "FlussError",
    "KvFormat",
    "LakeSnapshot",
    "LogFormat",
    "OffsetSpec",
    "OffsetType",
    "PartitionInfo",
    "PartitionSpec",
    "Schema",
    "SchemaInfo",
    "ServerNode",
    "TableAppend",
    "TableBucket",
    "TableDescriptor",
    "TableInfo",
    "TablePath",
    "__version__",
    "embedded",
]

__version__ = _fluss.__version__
embedded = _fluss.embedded


class FlussConnection(BaseConnection):
    """A connection to a cluster: `await FlussConnection.create(config)`, best in an `async with` block."""

    async def close(self) -> None:
        """Write what was appended, then close."""
        await Closing(self._session.close(), CLOSE_TIMEOUT_SECONDS)
