"""The log of a bucket: segments on disk, appends with group commit, reads by file range, recovery."""
