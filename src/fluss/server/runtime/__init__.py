"""The foundation of every server process: event loop, time slices for long work, log lines, heartbeats, listeners, and
the interface of handlers (`handlers`). Imports nothing else of the server.
"""
