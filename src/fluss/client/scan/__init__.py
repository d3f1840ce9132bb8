"""Reading logs: subscriptions, fetching ahead, remote segments, ranges of offsets.

Imported by `state` and `engine`, and by `api`, whose scanners are built on it (`api.base_scanner`). Start with
`scanner_core`.
"""
