"""How a put changes the rows of a bucket: merge engines, partial updates, aggregation."""
