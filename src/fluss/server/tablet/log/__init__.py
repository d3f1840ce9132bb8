"""Requests to logs: produce, fetch, offsets, limit scans."""
