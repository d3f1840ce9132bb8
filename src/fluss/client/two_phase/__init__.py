"""Staged appends, which become visible together: the task's side (`staging_sender`), the driver's (`commit_calls`).

Imported by `api` only, which has the public class: start with `api.staged`, then read `commit_calls`. The server's part
is `server.tablet.staging` and `server.coordinator.staged_commits`.
"""
