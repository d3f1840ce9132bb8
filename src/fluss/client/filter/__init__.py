"""Filters of users bound to a table: the form that servers get, and the rows that satisfy them."""
