"""Tiering and maintenance of lake tables, run by Spark."""
