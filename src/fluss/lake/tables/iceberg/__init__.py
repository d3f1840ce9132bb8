"""Lake tables as Iceberg tables (format version 2), through pyiceberg."""
