"""Constants about the offsets of a log."""

from __future__ import annotations

MIN_LOST_OFFSETS = 1 << 16
"""The least number of offsets without rows that a server leaves, if any, after it may have lost rows.

It lets a client that asks for the row count and then for the offsets tell new rows from a gap.
"""
