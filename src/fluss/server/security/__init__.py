"""Authentication (SASL) and permissions (ACLs)."""
