"""The current rows of a whole table."""

from fluss.client.table_read.current import read_current

__all__ = ["read_current"]
