"""Snapshots of primary-key buckets in remote storage: created, kept, removed, and restored.

Imported by `tablet`, `tablet.buckets` and `process`. Start with `bucket_snapshots`.
"""
