"""Tables in Spark's SQL: catalogs, views, statements as functions, lookup joins.

Imported by `fluss.spark`, which exports its functions. Start with `catalog` for SQL and with `ddl` for the functions.
"""
