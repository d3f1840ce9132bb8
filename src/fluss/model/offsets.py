"""What is known about the offsets of a log."""

from __future__ import annotations

MIN_LOST_OFFSETS = 1 << 16
"""Offsets without rows that a server leaves after it may have lost rows: at least so many, if any.

So a client that asks for the number of rows and for the offsets, one after the other, can tell new rows from a gap.
"""
