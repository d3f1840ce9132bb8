"""Reads that merge the lake of a table with its log.

Built on `client.engine` and `lake.tables`, not on tiering; imported by `lake.tiering`, `api` and `spark`. Start with
`plan`: it decides which rows come from where.
"""
