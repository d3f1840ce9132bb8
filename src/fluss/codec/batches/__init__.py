"""Batches as bytes: of the log, of changelogs, of puts, of answers with values. Start with `log_batch`."""
