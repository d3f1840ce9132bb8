"""The buckets that a tablet leads: opened, found for requests, written to, closed, removed. Start with `registry`."""
