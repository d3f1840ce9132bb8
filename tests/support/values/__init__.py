"""Values, rows and batches: drawn at random, invalid, documented, or written by other implementations.

Start with `row_strategies` for properties, and with `reference_log_batches` for bytes that we did not write.
"""
