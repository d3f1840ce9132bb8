"""What every process of the server stands on: its event loop, turns of long work, log lines, heartbeats, listeners, and
the shape of a handler (`handlers`). Imports nothing else of the server.
"""
