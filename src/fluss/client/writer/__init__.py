"""Writers: rows from `append` and `upsert` to acknowledged batches.

row_function (checks a row) -> row_buffer (chunks) -> columns, assigner, encoding (batches by bucket) -> bucket_queue
and sender (numbered requests, answers, retries) -> handles (who waits is told). See docs/writing.md.
"""

from fluss.client.writer.append_writer import AppendWriter
from fluss.client.writer.handles import PendingResult, WriteResultHandle
from fluss.client.writer.upsert_writer import UpsertWriter

__all__ = ["AppendWriter", "PendingResult", "UpsertWriter", "WriteResultHandle"]
