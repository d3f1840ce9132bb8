"""The coordinator's part of the lake: lake tables that follow Fluss tables, assignment of tiering, lake snapshots."""
