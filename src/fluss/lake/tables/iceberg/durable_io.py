"""File access for warehouses on a local disk: when a file is closed, its bytes and its name are on the disk.

pyiceberg loads this class by its name (`py-io-impl`), for data files, manifests and metadata.
"""

from __future__ import annotations

import io
import os
from pathlib import Path

from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

LOCAL_SCHEME = "file"


class DurableFileIO(PyArrowFileIO):
    """A `PyArrowFileIO` that syncs local files when they are closed."""

    def new_output(self, location: str) -> PyArrowFile:
        output = super().new_output(location)
        scheme, _, path = self.parse_location(location)
        return _DurableOutput(output, Path(path)) if scheme == LOCAL_SCHEME else output


class _DurableOutput(PyArrowFile):
    """An output file on the local disk, which is durable when it is closed."""

    def __init__(self, output: PyArrowFile, path: Path) -> None:
        super().__init__(output.location, output._path, output._filesystem)
        self._local_path = path

    def create(self, overwrite: bool = False) -> _SyncedWriter:
        _make_directories(self._local_path.parent)
        return _SyncedWriter(self._local_path, overwrite)


class _SyncedWriter(io.BufferedWriter):
    """A writer whose `close` makes the bytes durable, then the name of the file."""

    def __init__(self, path: Path, overwrite: bool) -> None:
        super().__init__(io.FileIO(path, "wb" if overwrite else "xb"))
        self._directory = path.parent

    def close(self) -> None:
        if self.closed:
            return
        try:
            self.flush()
            os.fsync(self.fileno())
        finally:
            super().close()
        _sync_directory(self._directory)


def _make_directories(directory: Path) -> None:
    """Create missing directories; the name of each is durable before anything is put into it."""
    if directory.is_dir():
        return
    _make_directories(directory.parent)
    directory.mkdir(exist_ok=True)
    _sync_directory(directory.parent)


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
