"""Authentication (SASL) and permissions (ACLs).

Imported by `config`, `network` and `apis`. Start with `permissions`: what each API key requires. `sasl` has the logins.
"""
