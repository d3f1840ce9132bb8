"""Lake tables as Iceberg tables (format version 2), through pyiceberg, which no other folder imports.

`lake.tables.open_lake` makes the objects; apart from it only the server's options import this folder. Start with
`table` (one table: contents, commits, plans) and `writing` (its files).
"""
