"""Types and values between tables and Spark.

Imported by `read`, `stream`, `write` and `sql`. Start with `types`, then `arrow`.
"""
