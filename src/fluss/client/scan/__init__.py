"""Reading logs: subscriptions, fetching ahead, remote segments, ranges of offsets.

Start with `scanner_core`; the public scanners are made of it (`api.base_scanner`).
"""
