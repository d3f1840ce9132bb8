"""Lake tables: their layout, tiering, and reads that merge them with logs. No Spark in here."""
