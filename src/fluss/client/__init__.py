"""The client: one I/O thread, connections to servers, cluster metadata, admin calls, writers and scanners.

Users import from `fluss` or `fluss.aio`; the modules here are free to move.
"""
