"""Streaming tables for Python and Spark.

This package is called ``fluss`` as in the documentation of Apache Fluss; the published client pyfluss has the same
import name, so the two need environments of their own.
"""

from __future__ import annotations

import os as _os
import sys as _sys
import warnings as _warnings
from collections.abc import Mapping as _Mapping
from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING

from fluss.errors import ErrorCode, FlussError
from fluss.lazy_imports import import_lock as _import_lock
from fluss.version import VERSION as _VERSION

if _TYPE_CHECKING:
    from fluss.client.acls import Acl
    from fluss.client.admin import FlussAdmin
    from fluss.client.admin_calls import ConfigEntry
    from fluss.client.connection import FlussConnection
    from fluss.client.data_types import DataField, DataTypes
    from fluss.client.databases import DatabaseDescriptor, DatabaseInfo
    from fluss.client.descriptors import KvFormat, LogFormat, TableDescriptor
    from fluss.client.facade import Database, connect
    from fluss.client.lookup import Lookuper, PrefixLookuper, TableLookup, TablePrefixLookup
    from fluss.client.rebalancing import BucketMove, RebalanceProgress
    from fluss.client.scanner import (
        BadBatch,
        BatchScanner,
        ColumnRef,
        LogScanner,
        Predicate,
        RecordBatch,
        ScanRecord,
        ScanRecords,
        col,
    )
    from fluss.client.schemas import Schema, SchemaInfo
    from fluss.client.table import FlussTable, TableAppend, TableScan
    from fluss.client.table_info import TableInfo
    from fluss.client.table_upsert import TableUpsert
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
    from fluss.client.writer import AppendWriter, UpsertWriter, WriteResultHandle
    from fluss.config import Config
    from fluss.server.embedded import EmbeddedCluster

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
    "Database",
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
    "connect",
    "embedded",
]

# Where public names live. They are loaded at first use: `import fluss` alone must not load Arrow.
_HOMES = {
    "fluss.client.acls": ("Acl",),
    "fluss.client.admin": ("FlussAdmin",),
    "fluss.client.admin_calls": ("ConfigEntry",),
    "fluss.client.connection": ("FlussConnection",),
    "fluss.client.data_types": ("DataField", "DataTypes"),
    "fluss.client.databases": ("DatabaseDescriptor", "DatabaseInfo"),
    "fluss.client.facade": ("Database", "connect"),
    "fluss.client.lookup": ("Lookuper", "PrefixLookuper", "TableLookup", "TablePrefixLookup"),
    "fluss.client.descriptors": ("KvFormat", "LogFormat", "TableDescriptor"),
    "fluss.client.rebalancing": ("BucketMove", "RebalanceProgress"),
    "fluss.client.scanner": (
        "BadBatch",
        "BatchScanner",
        "ColumnRef",
        "LogScanner",
        "Predicate",
        "RecordBatch",
        "ScanRecord",
        "ScanRecords",
        "col",
    ),
    "fluss.client.schemas": ("Schema", "SchemaInfo"),
    "fluss.client.table": ("FlussTable", "TableAppend", "TableScan"),
    "fluss.client.table_info": ("TableInfo",),
    "fluss.client.table_upsert": ("TableUpsert",),
    "fluss.client.values": (
        "EARLIEST_OFFSET",
        "LATEST_OFFSET",
        "ChangeType",
        "LakeSnapshot",
        "OffsetSpec",
        "OffsetType",
        "PartitionInfo",
        "PartitionSpec",
        "ServerNode",
        "TableBucket",
        "TablePath",
    ),
    "fluss.client.writer": ("AppendWriter", "UpsertWriter", "WriteResultHandle"),
    "fluss.config": ("Config",),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    module = _HOME_OF.get(name)
    if module is None:
        raise AttributeError(f"module 'fluss' has no attribute {name!r}")
    with _import_lock:
        value = getattr(_import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


__version__ = _VERSION

DISTRIBUTION = "flusspy"


def embedded(
    directory: str | _os.PathLike[str],
    *,
    tablets: int = 1,
    config: _Mapping[str, str] | None = None,
    bind: str = "127.0.0.1:0",
) -> EmbeddedCluster:
    """Start a durable server inside this program and return it; leaving its ``with`` block stops it.

    ``config`` takes the options of a ``server.yaml``. The default takes a free port on the loopback interface::

        with fluss.embedded("my-data") as cluster:
            print(cluster.bootstrap_servers)
    """
    with _import_lock:
        from fluss.server.embedded import start_embedded

    return start_embedded(directory, tablets=tablets, config=config, bind=bind)


def _warn_if_pyfluss_is_installed() -> None:
    """Looks for its metadata by file name only: asking ``importlib.metadata`` would double the import time."""
    for folder in _sys.path:
        try:
            names = _os.listdir(folder or ".")
        except OSError:
            continue
        if any(name.startswith("pyfluss-") and name.endswith(".dist-info") for name in names):
            _warnings.warn(
                "pyfluss and flusspy are installed in the same environment and both own the package name 'fluss': "
                "one overwrites files of the other. Give each an environment of its own, "
                "or run: pip uninstall pyfluss && pip install --force-reinstall flusspy",
                RuntimeWarning,
                stacklevel=3,
            )
            return


_warn_if_pyfluss_is_installed()
