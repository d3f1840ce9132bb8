"""The coordinator's part of the lake: lake tables that follow Fluss tables, assignment of tiering, lake snapshots.

Imported by `coordinator` and `coordinator.tables`. Start with `tiering`; `tiering_states` draws the states of a table.
"""
