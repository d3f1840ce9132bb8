"""Sending batches to servers: queues per bucket, requests, answers, retries, acknowledgements.

Imported by `write`, `two_phase` and `engine`, and by `api`. Start with `sender`; `bucket_queue` numbers the batches.
"""
