"""Streaming tables for Python and Spark. This module has the public names; ``__all__`` lists them.

This package is called ``fluss`` as in the documentation of Apache Fluss. The published client pyfluss has the same
import name, so the two need environments of their own.

Programs import it; inside the package only ``aio``, ``spark`` and ``cli`` may. Start with ``api.connection`` for the
client and with ``server.process`` for the server; docs/architecture.md shows how the folders depend on each other.
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
    from fluss.api.admin import FlussAdmin
    from fluss.api.blocking import Database, connect
    from fluss.api.connection import FlussConnection
    from fluss.api.limit_scan import BatchScanner
    from fluss.api.log_scanner import LogScanner
    from fluss.api.lookup import Lookuper, PrefixLookuper, TableLookup, TablePrefixLookup
    from fluss.api.table import FlussTable, TableAppend, TableScan
    from fluss.api.table_upsert import TableUpsert
    from fluss.client.calls.admin import ConfigEntry
    from fluss.client.calls.table_info import TableInfo
    from fluss.client.decode.bad_batches import BadBatch
    from fluss.client.decode.materialize import ScanRecord
    from fluss.client.scan.records import RecordBatch, ScanRecords
    from fluss.client.send.acknowledgements import WriteResultHandle
    from fluss.client.write.append_writer import AppendWriter
    from fluss.client.write.upsert_writer import UpsertWriter
    from fluss.config import Config
    from fluss.server.process.embedded import EmbeddedCluster
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

# The modules of the public names. They are loaded at first use: `import fluss` alone must not load Arrow.
_HOMES = {
    "fluss.values.acls": ("Acl",),
    "fluss.api.admin": ("FlussAdmin",),
    "fluss.client.calls.admin": ("ConfigEntry",),
    "fluss.api.connection": ("FlussConnection",),
    "fluss.values.data_types": ("DataField", "DataTypes"),
    "fluss.values.databases": ("DatabaseDescriptor", "DatabaseInfo"),
    "fluss.api.blocking": ("Database", "connect"),
    "fluss.api.lookup": ("Lookuper", "PrefixLookuper", "TableLookup", "TablePrefixLookup"),
    "fluss.values.descriptors": ("KvFormat", "LogFormat", "TableDescriptor"),
    "fluss.values.rebalancing": ("BucketMove", "RebalanceProgress"),
    "fluss.api.limit_scan": ("BatchScanner",),
    "fluss.api.log_scanner": ("LogScanner",),
    "fluss.client.decode.bad_batches": ("BadBatch",),
    "fluss.client.decode.materialize": ("ScanRecord",),
    "fluss.client.scan.records": ("RecordBatch", "ScanRecords"),
    "fluss.values.predicates": ("ColumnRef", "Predicate", "col"),
    "fluss.values.schema": ("Schema", "SchemaInfo"),
    "fluss.api.table": ("FlussTable", "TableAppend", "TableScan"),
    "fluss.client.calls.table_info": ("TableInfo",),
    "fluss.api.table_upsert": ("TableUpsert",),
    "fluss.values.basic": (
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
    "fluss.client.send.acknowledgements": ("WriteResultHandle",),
    "fluss.client.write.append_writer": ("AppendWriter",),
    "fluss.client.write.upsert_writer": ("UpsertWriter",),
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
    """Start a durable server inside this program and return it; leaving its ``with`` block stops the server.

    ``config`` takes the options of a ``server.yaml``. By default the server listens on a free port of the loopback
    interface::

        with fluss.embedded("my-data") as cluster:
            print(cluster.bootstrap_servers)
    """
    with _import_lock:
        from fluss.server.process.embedded import start_embedded

    return start_embedded(directory, tablets=tablets, config=config, bind=bind)


def _warn_if_pyfluss_is_installed() -> None:
    """Warn if pyfluss shares this environment. Only looks for its files: ``importlib.metadata`` doubles import time."""
    for folder in _sys.path:
        try:
            names = _os.listdir(folder or ".")
        except OSError:
            continue
        if any(name.startswith("pyfluss-") and name.endswith(".dist-info") for name in names):
            _warnings.warn(
                "pyfluss and flusspy are installed in the same environment and both own the package name 'fluss': "
                "one overwrites files of the other. Install each in its own environment, "
                "or run: pip uninstall pyfluss && pip install --force-reinstall flusspy",
                RuntimeWarning,
                stacklevel=3,
            )
            return


_warn_if_pyfluss_is_installed()
