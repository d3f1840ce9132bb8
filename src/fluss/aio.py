"""The API for event loops: the same classes as in `fluss`, with scanner calls that are awaited.

Code that was written for the published client pyfluss 1.0 runs with only its import changed::

    import fluss.aio as fluss

One implementation serves both faces; the classes here differ from those of `fluss` only in what waits: `close`, the
calls of scanners, and `async for` over a scanner.
"""

from __future__ import annotations

from fluss import (
    EARLIEST_OFFSET,
    LATEST_OFFSET,
    ChangeType,
    Config,
    ConfigEntry,
    DatabaseDescriptor,
    DatabaseInfo,
    DataField,
    DataTypes,
    ErrorCode,
    FlussAdmin,
    FlussError,
    KvFormat,
    LakeSnapshot,
    LogFormat,
    OffsetSpec,
    OffsetType,
    PartitionInfo,
    PartitionSpec,
    Schema,
    SchemaInfo,
    ServerNode,
    TableAppend,
    TableBucket,
    TableDescriptor,
    TableInfo,
    TablePath,
    __version__,
    embedded,
)
from fluss.client.awaitable import Closing
from fluss.client.connection import CLOSE_TIMEOUT_SECONDS, BaseConnection

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


class FlussConnection(BaseConnection):
    """A connection to a cluster: `await FlussConnection.create(config)`, best in an `async with` block."""

    async def close(self) -> None:
        """Write what was appended, then close."""
        await Closing(self._session.close(), CLOSE_TIMEOUT_SECONDS)
