"""Databases, tables and partitions made, changed and dropped, by requests and by the clock; which are allowed."""
