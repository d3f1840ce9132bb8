"""Requests to logs: produce, fetch, offsets, limit scans.

Imported by `tablet` and `tablet.staging`. Start with `produce` and `fetch`.
"""
