"""Tables in Spark's SQL: catalogs, views, statements as functions, lookup joins."""
