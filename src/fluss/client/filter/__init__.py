"""Filters of users bound to a table: what servers are told, and which rows satisfy them."""
