"""Reads that merge the lake of a table with its log. Start with `plan`: which rows come from where.

Imported by `api` and `spark`; knows `client.engine` and `lake.tables`, and not how a lake is filled.
"""
