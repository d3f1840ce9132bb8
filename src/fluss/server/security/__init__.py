"""Logins (SASL), and the permission that each API key requires. Start with `permissions`."""
