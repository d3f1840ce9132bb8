"""Moved to `fluss.lake.coordinator_calls`; importing this module warns."""

from __future__ import annotations

import warnings

from fluss.lake.coordinator_calls import KEEP_ALL_SNAPSHOTS, FinishedTable, HeartbeatAnswer, TieringCalls, TieringTable

__all__ = ["KEEP_ALL_SNAPSHOTS", "FinishedTable", "HeartbeatAnswer", "TieringCalls", "TieringTable"]

warnings.warn("fluss.client.lake_calls is now fluss.lake.coordinator_calls", DeprecationWarning, stacklevel=2)
