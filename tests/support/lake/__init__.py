"""Tables with a lake. Start with `tables` (lake tables alone) and `tiered_tables` (a real server and real tiering)."""
