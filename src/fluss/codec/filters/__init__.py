"""Filters of a fetch as plain values.

Imported by `batches`, `values`, the client, the server and the lake. Start with `predicate`, the only module.
"""
