"""The rows of one task, kept until all of them have arrived.

Small amounts stay in memory; from `MAX_MEMORY_BYTES` on they go to a file in Spark's local directory (the first of
`SPARK_LOCAL_DIRS`, else the system's), which is unlinked as soon as it is open: it is removed with the process, however
that ends. States: filling (`add`) -> reading (`batches`, any number of times) -> closed. One thread.

`checksum` covers all rows in their order, so that a replay of the same rows can be recognised.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
import zlib
from collections.abc import Iterator
from types import TracebackType
from typing import IO

import pyarrow as pa

from fluss.errors import FlussError

MAX_MEMORY_BYTES = 32 * 1024 * 1024
MAX_SPOOL_BYTES = 64 * 1024**3
MIN_FREE_DISK_BYTES = 512 * 1024 * 1024
LOCAL_DIRS_VARIABLE = "SPARK_LOCAL_DIRS"


class Spool:
    """Record batches of one schema. Use it in a `with` block."""

    def __init__(self, schema: pa.Schema, max_memory_bytes: int | None = None) -> None:
        self._schema = schema
        self._max_memory_bytes = MAX_MEMORY_BYTES if max_memory_bytes is None else max_memory_bytes
        self._directory = os.environ.get(LOCAL_DIRS_VARIABLE, "").split(",")[0].strip() or tempfile.gettempdir()
        self._kept: list[pa.Buffer] = []
        self._sizes: list[int] = []
        self._file: IO[bytes] | None = None
        self.rows = 0
        self.size_bytes = 0
        self.checksum = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Keep the rows of a batch."""
        data = batch.serialize()
        self.rows += batch.num_rows
        self.size_bytes += data.size
        self.checksum = zlib.crc32(data, self.checksum)
        self._check_size()
        self._kept.append(data)
        if self._file is not None or self.size_bytes > self._max_memory_bytes:
            self._write_out()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All rows, in the batches and the order in which they arrived."""
        if self._file is not None:
            self._file.seek(0)
            for size in self._sizes:
                yield pa.ipc.read_record_batch(pa.py_buffer(self._file.read(size)), self._schema)
        for data in self._kept:
            yield pa.ipc.read_record_batch(data, self._schema)

    def close(self) -> None:
        """Drop the rows."""
        self._kept.clear()
        if self._file is not None:
            self._file.close()

    def _write_out(self) -> None:
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(dir=self._directory, prefix="fluss-spool-")  # noqa: SIM115 - closed by close()
            for data in self._kept:
                self._file.write(data)
                self._sizes.append(data.size)
        except OSError as error:
            raise self._refusal(f"{error.strerror} ({errno.errorcode.get(error.errno or 0, error.errno)})") from error
        self._kept.clear()

    def _check_size(self) -> None:
        if self.size_bytes > MAX_SPOOL_BYTES:
            raise self._refusal(f"the limit is {MAX_SPOOL_BYTES} bytes per task")
        if self._file is not None and shutil.disk_usage(self._directory).free < MIN_FREE_DISK_BYTES:
            raise self._refusal(f"fewer than {MIN_FREE_DISK_BYTES} bytes are free there")

    def _refusal(self, reason: str) -> FlussError:
        return FlussError(
            f"the rows of a task ({self.size_bytes} bytes) cannot be kept in {self._directory} until they are "
            f"complete: {reason}. Use smaller tasks (repartition), another directory (spark.local.dir), or the "
            "option delivery=at-least-once, which keeps nothing"
        )

    def __enter__(self) -> Spool:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
