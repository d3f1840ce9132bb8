"""Filters of users bound to a table: the form that servers get, and the rows that satisfy them.

Imported by `decode`, `state` and `engine`. Start with `filters`; `literals` converts the values that a filter compares
columns with.
"""
