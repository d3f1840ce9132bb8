"""The API for event loops: the same classes as in `fluss`, with scanner calls that are awaited.

Code that was written for the published client pyfluss 1.0 runs with only its import changed::

    import fluss.aio as fluss

Both APIs share one implementation. The classes here differ from those of `fluss` only in the calls that wait: `close`,
the calls of scanners, and `async for` over a scanner.
"""

from __future__ import annotations

import fluss as _fluss
from fluss.api.admin import FlussAdmin
from fluss.api.aio_scanner import AioBatchScanner as BatchScanner
from fluss.api.aio_scanner import AioLogScanner as LogScanner
from fluss.api.connection import CLOSE_TIMEOUT_SECONDS, BaseConnection
from fluss.api.lookup import Lookuper, PrefixLookuper, TableLookup, TablePrefixLookup
from fluss.api.table import BaseTable, BaseTableScan, TableAppend, check_bucket
from fluss.api.table_upsert import TableUpsert
from fluss.client.calls.admin import ConfigEntry
from fluss.client.calls.table_info import TableInfo
from fluss.client.decode.bad_batches import BadBatch
from fluss.client.decode.materialize import ScanRecord
from fluss.client.net.self_awaitable import Closing
from fluss.client.scan.records import RecordBatch, ScanRecords
from fluss.client.send.acknowledgements import WriteResultHandle
from fluss.client.write.append_writer import AppendWriter
from fluss.client.write.upsert_writer import UpsertWriter
from fluss.config import Config
from fluss.errors import ErrorCode, FlussError
from fluss.model import paths
from fluss.values.acls import Acl
from fluss.values.basic import (
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
from fluss.values.data_types import DataField, DataTypes
from fluss.values.databases import DatabaseDescriptor, DatabaseInfo
from fluss.values.descriptors import KvFormat, LogFormat, TableDescriptor
from fluss.values.predicates import ColumnRef, Predicate, col
from fluss.values.rebalancing import BucketMove, RebalanceProgress
from fluss.values.schema import Schema, SchemaInfo

__all__ = [
    "EARLIEST_OFFSET",
    "LATEST_OFFSET",
    "Acl",
    "AppendWriter",
    "BadBatch",
    "BatchScanner",
    "BucketMove",
    "ChangeType",
    "ColumnRef",
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
    "FlussTable",
    "KvFormat",
    "LakeSnapshot",
    "LogFormat",
    "LogScanner",
    "Lookuper",
    "OffsetSpec",
    "OffsetType",
    "PartitionInfo",
    "PartitionSpec",
    "Predicate",
    "PrefixLookuper",
    "RebalanceProgress",
    "RecordBatch",
    "ScanRecord",
    "ScanRecords",
    "Schema",
    "SchemaInfo",
    "ServerNode",
    "TableAppend",
    "TableBucket",
    "TableDescriptor",
    "TableInfo",
    "TableLookup",
    "TablePath",
    "TablePrefixLookup",
    "TableScan",
    "TableUpsert",
    "UpsertWriter",
    "WriteResultHandle",
    "__version__",
    "col",
    "embedded",
]

__version__ = _fluss.__version__
embedded = _fluss.embedded


class FlussConnection(BaseConnection):
    """A connection to a cluster: `await FlussConnection.create(config)`, best in an `async with` block."""

    async def get_table(self, table_path: paths.TablePath | str) -> FlussTable:
        """A table for reading and writing. Code 7 if it does not exist."""
        return FlussTable(self._session, await self._open_table(table_path))

    async def close(self) -> None:
        """Send all appended rows and wait until they are acknowledged, then close the connection."""
        await Closing(self._session.close(), CLOSE_TIMEOUT_SECONDS)


class FlussTable(BaseTable):
    """A table of a connection; obtained with `await connection.get_table(path)`."""

    def new_scan(self) -> TableScan:
        """A builder for scanners."""
        return TableScan(self._session, self._table)


class TableScan(BaseTableScan):
    """Builder for scanners; every step returns a new builder."""

    async def create_log_scanner(self) -> LogScanner:
        """A scanner of records, for `poll()` and `async for`."""
        self._check_log_scan()
        return LogScanner(self._session, self._table, self._plan, records=True)

    async def create_record_batch_log_scanner(self) -> LogScanner:
        """A scanner of Arrow batches, for `poll_arrow()`, `poll_record_batch()`, `to_arrow()` and `to_pandas()`."""
        self._check_log_scan()
        return LogScanner(self._session, self._table, self._plan, records=False)

    async def create_batch_scanner(self) -> LogScanner:
        """Alias of `create_record_batch_log_scanner()`."""
        return await self.create_record_batch_log_scanner()

    def create_bucket_batch_scanner(self, bucket: paths.TableBucket) -> BatchScanner:
        """A scanner of up to `limit(n)` rows of one bucket: a log's last ones, a primary-key table's first by key."""
        return BatchScanner(self._session, self._table, self._plan, check_bucket(self._table, bucket))
