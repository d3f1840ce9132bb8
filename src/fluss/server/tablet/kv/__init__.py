"""Primary-key tables: puts, merge engines, lookups and scans.

Imported by `tablet` and `tablet.log`. Start with `put` for writes and with `kv_reads` for reads.
"""
