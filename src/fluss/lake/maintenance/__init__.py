"""Maintenance of lake tables: compacts small files, expires snapshots, removes files of dead rounds. No Spark here."""
