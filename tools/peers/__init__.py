"""Other systems that tests, benchmarks and tools run beside ours: Apache Fluss, pyfluss, Spark's classes.

They are fetched once per user; start with `cache`, which says where they are kept. Imports nothing of `tests`.
"""
