"""Spark sessions and the connections that their processes share.

Imported by `read`, `stream`, `write`, `sql` and `lake`. Start with `connection_cache`. `session` is the function
`fluss.spark.session`.
"""
