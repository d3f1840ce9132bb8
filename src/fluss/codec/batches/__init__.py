"""Batches as bytes: of logs, changelogs, puts, and answers with values. Start with `log_batch`."""
