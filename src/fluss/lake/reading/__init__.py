"""Reads that merge the lake of a table with its log. Start with `plan`: it decides which rows come from where.

Imported by `api` and `spark`. Depends on the client and `lake.tables`, not on tiering.
"""
