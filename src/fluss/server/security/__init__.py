"""Who may come in (SASL) and what they may do (ACLs)."""
