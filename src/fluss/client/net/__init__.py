"""Connections to servers: the I/O thread, requests and answers, metadata of tables and leaders.

`session` is shared by the objects of one connection; `cluster` finds the server for a bucket; `rpc` is one socket.
Start with `session`.
"""
