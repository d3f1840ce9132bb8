"""Writers: rows from `append` to acknowledged batches.

row_function (checks a row) -> row_buffer (chunks) -> columns, assigner, encoding (batches by bucket) -> bucket_queue
and sender (numbered requests, answers, retries) -> handles (who waits is told). See docs/writing.md.
"""

from fluss.client.writer.append_writer import AppendWriter
from fluss.client.writer.handles import PendingResult, WriteResultHandle

__all__ = ["AppendWriter", "PendingResult", "WriteResultHandle"]
