"""Reads that merge the lake of a table with its log. Start with `plan`: it decides which rows come from where.

Imported by `api` and `spark`. Depends on `client.engine` and `lake.tables`, not on tiering.
"""
