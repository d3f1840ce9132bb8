"""Primary-key tables: puts, merge engines, lookups and scans."""
