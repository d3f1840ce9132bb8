"""Lake tables: what they look like, what to tier, how to merge. No Spark in here."""
