"""Reading logs: subscriptions, fetching ahead, remote segments, ranges of offsets.

Start with `scanner_core`; the public scanners are built on it (`api.base_scanner`).
"""
