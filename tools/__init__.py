"""Developer tools; not part of the installed package.

`servers`, `peers` and `waiting` are what tests, benchmarks and examples have in common.
"""
