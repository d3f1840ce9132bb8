"""Logins (SASL), and the permission that each API key requires.

Imported by `config`, `network` and `apis`. Start with `permissions`: what each API key requires. `sasl` has the logins.
"""
