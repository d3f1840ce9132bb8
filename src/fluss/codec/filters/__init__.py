"""Filters of a fetch as plain values."""
