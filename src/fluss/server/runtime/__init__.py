"""The foundation of every server process: event loop, time slices, log lines, heartbeats, listeners, handlers.

Imports nothing else of the server; all other folders of the server may import it. Start with `handlers`, the interface
between roles and the network.
"""
