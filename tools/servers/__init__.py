"""`fluss server` as a process, and a client on the level of the wire protocol, for tests, benchmarks and tools.

Start with `server_process` and `wire_client`. Imports nothing of `tests`, and no pytest.
"""
