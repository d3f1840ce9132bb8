"""What a put does to the rows of a bucket: merge engines, partial updates, aggregation."""
