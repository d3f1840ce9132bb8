"""What is below the servers: logs, catalogs, snapshots, and disks that fill up, fail or lose power.

Start with `faulty_files` (a disk that fails) and `bucket_logs` (a log without an event loop).
"""
