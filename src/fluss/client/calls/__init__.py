"""Calls with one request and one answer, as coroutines of the I/O thread.

Imported by `scan`, `state` and `engine`, and by `api`, which has their public form. Start with `admin`.
"""
