"""Streaming reads: `spark.readStream.format("fluss")`."""
