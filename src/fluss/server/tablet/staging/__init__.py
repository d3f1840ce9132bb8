"""Staged appends: rows that wait outside of the log until their commit is decided, and then enter it exactly once.

The way of a batch, and who does what:

1. `stage`: a client sends batches of an attempt, `bucket_files` writes them into a file of the bucket. No sync.
2. `commit_apis` PREPARE: the files of the winning attempts are whole and on disk.
3. The coordinator decides (`coordinator.staged_commits`): one transaction of the catalog.
4. `applier`: whatever is decided for buckets of this tablet is appended through the normal idempotent append, marked
   as applied in the catalog, and its files are removed. It looks by itself, so nobody has to ask for it.
5. `cleaning`: files that can never be decided go away.

Exactly once: step 4 may be repeated after a crash. The log's writer state says which sequences of an attempt it has,
and is kept as long as the attempt has a file; the mark is made when the rows are durable, the file goes after the mark.
"""
