"""What admin calls take and answer."""

from __future__ import annotations

from fluss.client.calls.admin import (
    REMOVE_VALUE,
    SET_VALUE,
    AdminCalls,
    ConfigEntry,
    config_changes,
    lake_snapshot,
)
from fluss.client.calls.table_info import TableInfo
from fluss.client.net.metadata import ClientTable

__all__ = [
    "REMOVE_VALUE",
    "SET_VALUE",
    "AdminCalls",
    "ClientTable",
    "ConfigEntry",
    "TableInfo",
    "config_changes",
    "lake_snapshot",
]
