"""Types and values between tables and Spark."""
