"""Rows by key: from a key as users give it to the stored row. The public classes are in `api.lookup`."""
