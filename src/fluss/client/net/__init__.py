"""Connections to servers: the I/O thread, requests and answers, metadata of tables and leaders.

`session` is shared by the objects of one connection; `cluster` finds the server for a bucket; `rpc` is one socket.
The lowest folder of the client: all others may import it, and so does `api`. Start with `session`.
"""
