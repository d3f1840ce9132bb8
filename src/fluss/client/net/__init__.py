"""Connections to servers: the I/O thread, requests and answers, what is known about tables and leaders.

`session` is what the objects of one connection share; `cluster` finds the server for a bucket; `rpc` is one socket.
Start with `session`.
"""
