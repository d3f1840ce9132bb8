"""Lake tables: their layout (`tables`), reads that merge them with logs (`reading`), tiering and maintenance.

No Spark in here. `spark` and `cli` may import all of it, the server only `tables`, and `api` only `reading`. Start with
`tiering.rounds`: how rows get from logs into the lake.
"""
