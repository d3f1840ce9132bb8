"""Connections, request dispatch and limits of a server process.

Imported by `process` only: handlers know just `runtime.handlers`. Start with `server`, then follow a request through
`connection` and `dispatch`.
"""
