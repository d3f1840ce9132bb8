"""The one-machine server: coordinator, tablets, storage, and the processes in which they run.

Knows `model`, `codec`, `protocol` and `lake.tables`, but not the client. Imported by `fluss.embedded` and `cli`. Start
with `process.supervisor` for the processes, with `tablet.service` and `coordinator.service` for what they serve.
"""
