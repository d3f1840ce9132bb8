"""Reading the decided batches of a staged file in parts, after those that the log already has."""

from __future__ import annotations

from fluss.codec.batches.log_batch import CorruptBatch
from fluss.errors import ErrorCode, FlussError
from fluss.server.catalog.staged_records import StagedFileEntry
from fluss.server.storage.files import FileSystem
from fluss.server.storage.staged_files import read_staged_batches, staged_path
from fluss.server.tablet.staging.bucket_files import BucketFiles


class StagedReader:
    """One pass over a staged file. `read` runs in the bucket's staging thread, one call at a time."""

    def __init__(self, name: str, directory: str, file: StagedFileEntry, next_sequence: int, files: FileSystem) -> None:
        self._name = name
        self._path = staged_path(directory, file.writer_id)
        self._file = file
        self._next_sequence = next_sequence
        self._io = files
        self._position: int | None = None
        self._end = 0

    def read(self, bucket_files: BucketFiles) -> bytearray | None:
        """The next whole batches that the log lacks; None if there are no more."""
        if self._position is None:
            start = bucket_files.header_bytes(self._file.writer_id)
            if start is None:
                raise self._damaged("the file is missing")
            self._position, self._end = start, start + self._file.size_bytes
        while self._position < self._end:
            descriptor = self._io.open_read(self._path)
            try:
                part = read_staged_batches(self._io, descriptor, self._position, self._end)
            except CorruptBatch as error:
                raise self._damaged(str(error)) from error
            finally:
                self._io.close(descriptor)
            if part is None:
                raise self._damaged(f"no whole batch at byte {self._position}")
            self._position = part.end
            wanted = [item for item in part.batches if item[1].batch_sequence >= self._next_sequence]
            if wanted:
                first_position, first = wanted[0]
                if first.batch_sequence != self._next_sequence:
                    raise self._damaged(f"it has batch {first.batch_sequence}, expected {self._next_sequence}")
                self._next_sequence = wanted[-1][1].batch_sequence + 1
                del part.data[:first_position]
                return part.data
        if self._next_sequence != self._file.batch_count:
            raise self._damaged(f"it ends before batch {self._next_sequence}")
        return None

    def _damaged(self, what: str) -> FlussError:
        return FlussError(
            f"cannot read committed rows of {self._name} from {self._path}: {what}; restore the file, or drop the "
            "table or partition to give them up",
            ErrorCode.STORAGE_EXCEPTION,
        )
