"""Streaming tables for Python and Spark."""
