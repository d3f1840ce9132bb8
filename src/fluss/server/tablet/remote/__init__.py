"""Segments in remote storage: uploads, expiry, and the answers for readers.

Imported by `tablet`, `tablet.buckets`, `tablet.log` and `process`. Start with `remote_log`.
"""
