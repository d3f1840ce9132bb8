"""`fluss server` as a process, and what talks to it below the client: for tests, benchmarks and tools alike.

Start with `server_process` and `wire_client`. Imports nothing of `tests`, and no pytest.
"""
