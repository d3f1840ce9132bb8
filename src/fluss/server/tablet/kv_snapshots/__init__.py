"""Snapshots of primary-key buckets in remote storage: taken, kept, removed, and put back."""
