"""Creates, changes and drops databases, tables and partitions, on request and by time; and the rules for them."""
