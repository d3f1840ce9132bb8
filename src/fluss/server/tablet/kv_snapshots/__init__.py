"""Snapshots of primary-key buckets in remote storage: created, kept, removed, and restored."""
