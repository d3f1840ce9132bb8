"""Files of a tablet, local and remote: logs, key-value stores, staged rows, snapshots.

Imported by `catalog`, `apis`, `coordinator`, `tablet` and `process`; knows nothing of requests. Start with
`log.bucket_log`; `files` has the file operations that all of them use.
"""
