"""The lake with Spark as its engine: tiering and maintenance."""
