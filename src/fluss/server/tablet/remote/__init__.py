"""Segments in remote storage: uploads, expiry, and the answers for readers."""
