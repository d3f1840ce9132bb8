"""The data directory below `DIR/data`: directories of tables, their records, the reserve of disk space.

Imported by `catalog`, `coordinator`, `tablet` and `process`. Start with `table_directories`.
"""
