"""Coordinator and tablet without sockets: tests call their handlers and own the disk and the clock.

Start with `coordinator` and `tablet`; the other modules add primary-key tables and staged appends to a tablet.
"""
