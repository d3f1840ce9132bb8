"""Developer tools; not part of the installed package.

Tests, benchmarks and examples share `servers`, `peers` and `waiting`. The other modules are commands of `dev.py`, or
run with `python -m tools.NAME`; start with `environment` and `testing`.
"""
