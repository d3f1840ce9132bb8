"""Assembles a server: data directory, sockets, supervisor, roles. The top layer of `server`. Start with `supervisor`,
or with `embedded` for a server inside a program.
"""
