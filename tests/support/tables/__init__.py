"""Tables filled and read back through clients. Start with `scan_tables` (logs) and `kv_tables` (primary keys).

`log_workload` and `kv_workload` write and check over any number of crashes of the server.
"""
