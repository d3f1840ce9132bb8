"""The buckets that a tablet leads: opened, found for requests, written to, closed, removed.

Built on `storage`; imported by the other folders of `tablet`. Start with `registry`; `write_requests` has the path that
all writes take.
"""
