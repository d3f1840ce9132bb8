"""Staged appends: rows that wait outside the log until their commit is decided, and are then appended exactly once.

The steps of a batch:

1. `stage`: a client sends batches of an attempt, `bucket_files` writes them into a file of the bucket. No sync.
2. `commit_apis` PREPARE: the files of the winning attempts are checked for completeness and synced.
3. The coordinator decides (`coordinator.staged_commits`): one transaction of the catalog.
4. `applier`: rows that are decided for buckets of this tablet are appended through the normal idempotent append, marked
   as applied in the catalog, and their files are removed. It polls the catalog, so no request is needed.
5. `cleaning`: files that can never be committed are removed.

Exactly once: step 4 may be repeated after a crash. The log's writer state has the sequences of an attempt that were
appended, and is kept as long as the attempt has a file. The entry in the catalog is made when the rows are durable, and
the file is removed after that.

Imported by `tablet` only. Start with `service`, which assembles the parts.
"""
