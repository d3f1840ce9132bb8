"""Sending batches to servers: queues per bucket, requests, answers, retries, acknowledgements.

Start with `sender`; the numbering of batches is in `bucket_queue`. Imported by `write` and `two_phase`.
"""
