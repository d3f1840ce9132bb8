"""Putting a server together: data directory, sockets, supervisor, roles. The top of `server`; start with `supervisor`,
or `embedded` for a server inside a program.
"""
