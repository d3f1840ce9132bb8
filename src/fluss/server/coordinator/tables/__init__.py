"""Creates, changes and drops databases, tables and partitions, on request and by time; and the rules for them.

Imported by `coordinator` and `process`. Start with `table_apis`; `table_rules` has the checks.
"""
