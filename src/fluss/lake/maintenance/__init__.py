"""Upkeep of lake tables: small files compacted, old snapshots expired, files of dead rounds removed. No Spark here."""
