"""Lookups of rows by key: from the user's key to the stored row.

Imported by `state` and `engine`, and by `api`, which has the public classes (`api.lookup`). Start with `lookup_queue`.
"""
