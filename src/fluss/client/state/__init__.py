"""Reading whole primary-key tables: scans of their store, snapshots, and changelogs folded by key.

Imported by `engine` and `api`. Start with `bucket_state`: the rows of one bucket as of an offset. `key_ranges` and
`key_fold` are for reads in several tasks and in bounded memory.
"""
