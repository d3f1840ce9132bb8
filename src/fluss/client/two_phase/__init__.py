"""Staged appends, which become visible together: the task's side (`staging_sender`), the driver's (`commit_calls`).

The public class is `api.staged`; the server's part is `server.tablet.staging` and `server.coordinator.staged_commits`.
"""
