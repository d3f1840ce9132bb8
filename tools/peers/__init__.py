"""Other systems that tests, benchmarks and tools run beside ours: Apache Fluss, pyfluss, Spark's classes.

They are fetched once per user. Imports nothing of `tests`. Start with `cache`: where they are kept, and how they are
fetched once.
"""
