"""Lookups of rows by key: from the user's key to the stored row. The public classes are in `api.lookup`."""
