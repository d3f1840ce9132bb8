"""The size of a gap in the offsets of a log."""

from __future__ import annotations

MIN_LOST_OFFSETS = 1 << 16
"""If a server skips offsets because it may have lost rows, it skips at least this many.

A client that asks for the number of rows and then for the offsets can so distinguish a gap from new rows.
"""
