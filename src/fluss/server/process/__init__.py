"""Assembles a server: data directory, sockets, supervisor, roles. The top layer of `server`.

Imported by `cli` and `fluss.embedded`. Start with `supervisor`, or with `embedded` for a server inside a program.
"""
