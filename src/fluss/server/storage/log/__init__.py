"""The log of a bucket: segments on disk, appends with group commit, reads by file range, recovery.

Imported by `storage.kv`, `storage.directory`, `catalog`, `apis`, `coordinator` and `tablet`. Start with `bucket_log`,
then `committer` (writes) and `recovery` (starts).
"""
