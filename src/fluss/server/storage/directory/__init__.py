"""The data directory below `DIR/data`: directories of tables, their records, the reserve of disk space."""
