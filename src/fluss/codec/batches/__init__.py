"""Encodes and decodes batches: of logs, changelogs, puts, and answers with values. Start with `log_batch`."""
