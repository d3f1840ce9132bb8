"""Objects in remote storage, through pyarrow's file systems: a local directory or an S3-style address.

Object names are sent to clients: they are absolute paths for a local store (plain ones, because pyfluss cannot open
`file:/x`), and URIs otherwise. All methods block: call them in a worker thread. The only state is the opened file
system, which pyarrow allows to be used from any thread.

An upload into a local store is synced before it returns, because the caller deletes its own copy afterwards.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from pyarrow import fs

from fluss.codec.crc import crc32c_of_pieces
from fluss.errors import ErrorCode, FlussError
from fluss.model.names import DIRECTORY_NAME_LIMIT_CHARACTERS
from fluss.model.paths import TableBucket, TablePath

_S3_SCHEMES = ("s3", "s3a")
_COPY_CHUNK_BYTES = 4 * 1024 * 1024
# A store that does not answer must not block the worker, and with it a stop of the server, forever.
S3_CONNECT_TIMEOUT_SECONDS = 10
S3_REQUEST_TIMEOUT_SECONDS = 60


class RemoteStore:
    """The objects in one `remote.data.dir`: uploaded, read and deleted by name."""

    def __init__(self, root: str, options: Mapping[str, str] | None = None) -> None:
        parts = urlsplit(root)
        self._options = dict(options or {})
        self._query = parts.query
        self._filesystem: fs.FileSystem | None = None
        if parts.scheme in ("", "file"):
            self.is_local = True
            self.root = str(Path(parts.path if parts.scheme else root).expanduser().absolute())
        else:
            self.is_local = False
            self.root = root.partition("?")[0].rstrip("/")

    def check_reachable(self) -> None:
        """Raise OSError or FlussError if nothing can be stored now."""
        if self.is_local:
            directory = Path(self.root)
            while not directory.exists():
                directory = directory.parent
            if not directory.is_dir():
                raise NotADirectoryError(f"{directory} is not a directory")
            if not os.access(directory, os.W_OK | os.X_OK):
                raise PermissionError(f"directory {directory} is not writable")
            return
        filesystem, path = self._resolve(self.root)
        bucket = path.partition("/")[0]
        if filesystem.get_file_info(bucket).type == fs.FileType.NotFound:
            raise FileNotFoundError(f"bucket {bucket!r} does not exist")

    def tablet_directory(
        self, path: TablePath, bucket: TableBucket, partition_name: str | None, kind: str = "log"
    ) -> str:
        """The directory of a bucket, in the layout that clients expect; `kind` is `log` or `kv`."""
        table = f"{self.root}/{kind}/{path.database_name}/{path.table_name}-{bucket.table_id}"
        if bucket.partition_id is not None:
            # Truncated like the local directory: file systems limit names, and the id makes it unique.
            table += f"/{(partition_name or '')[:DIRECTORY_NAME_LIMIT_CHARACTERS]}-p{bucket.partition_id}"
        return f"{table}/{bucket.bucket_id}"

    def upload(self, source: Path, name: str, expected_bytes: int) -> None:
        """Copy a local file to object `name`, which must end up with `expected_bytes`."""
        filesystem, path = self._resolve(name)
        self._make_parent(filesystem, path)
        fs.copy_files(
            str(source),
            path,
            source_filesystem=fs.LocalFileSystem(),
            destination_filesystem=filesystem,
            chunk_size=_COPY_CHUNK_BYTES,
            use_threads=False,
        )
        actual = filesystem.get_file_info(path).size
        if actual != expected_bytes:
            raise OSError(f"upload of {source} to {name} has {actual} bytes, expected {expected_bytes}")
        self._sync(path)

    def write(self, name: str, content: bytes) -> None:
        """Create object `name` with this content."""
        filesystem, path = self._resolve(name)
        self._make_parent(filesystem, path)
        with filesystem.open_output_stream(path) as stream:
            stream.write(content)
        self._sync(path)

    def read(self, name: str) -> bytes:
        """Return the content of object `name`."""
        filesystem, path = self._resolve(name)
        with filesystem.open_input_stream(path) as stream:
            return bytes(stream.read())

    def download(self, name: str, target: Path) -> tuple[int, int]:
        """Copy an object into a new local file, synced; returns its size and its CRC-32C."""
        filesystem, path = self._resolve(name)
        with filesystem.open_input_stream(path) as stream, target.open("xb") as file:

            def copied() -> Iterator[bytes]:
                while chunk := stream.read(_COPY_CHUNK_BYTES):
                    file.write(chunk)
                    yield chunk

            checksum = crc32c_of_pieces(copied())
            file.flush()
            os.fsync(file.fileno())
            return file.tell(), checksum

    def delete(self, name: str) -> None:
        """Remove an object; it is not an error if it does not exist."""
        filesystem, path = self._resolve(name)
        if filesystem.get_file_info(path).type != fs.FileType.NotFound:
            filesystem.delete_file(path)

    def delete_directory(self, name: str) -> None:
        """Remove everything below `name`; it is not an error if there is nothing."""
        filesystem, path = self._resolve(name)
        if filesystem.get_file_info(path).type != fs.FileType.NotFound:
            filesystem.delete_dir(path)

    def remove_empty_parents(self, name: str) -> None:
        """Remove empty directories above `name`, up to the store's root (local stores only)."""
        directory = Path(name).parent
        while self.is_local and str(directory) != self.root and directory.is_relative_to(self.root):
            try:
                directory.rmdir()
            except OSError:
                return  # Not empty, or another tablet has already removed it.
            directory = directory.parent

    def _resolve(self, name: str) -> tuple[fs.FileSystem, str]:
        if self.is_local:
            if self._filesystem is None:
                self._filesystem = fs.LocalFileSystem()
            return self._filesystem, name
        if self._filesystem is None:
            self._filesystem = self._open()
        return self._filesystem, name.partition("://")[2].lstrip("/")

    def _open(self) -> fs.FileSystem:
        scheme = urlsplit(self.root).scheme
        if scheme in _S3_SCHEMES and not self._query:
            return fs.S3FileSystem(**_s3_arguments(self._options))
        address = "s3" + self.root[len(scheme) :] if scheme in _S3_SCHEMES else self.root
        try:
            filesystem, _ = fs.FileSystem.from_uri(address + (f"?{self._query}" if self._query else ""))
        except (ValueError, OSError) as error:
            raise FlussError(
                f"cannot open remote.data.dir {self.root!r}: {error}. Use a local directory or an address that "
                "pyarrow's file systems support, for example s3://bucket/path",
                ErrorCode.INVALID_CONFIG_EXCEPTION,
            ) from error
        return filesystem

    def _make_parent(self, filesystem: fs.FileSystem, path: str) -> None:
        if filesystem.type_name != "s3":  # An object store has no directories to create.
            filesystem.create_dir(path.rpartition("/")[0], recursive=True)

    def _sync(self, path: str) -> None:
        """Sync a local file and the directories above it: only then is the copy durable."""
        if not self.is_local:
            return
        _sync_path(path, os.O_RDONLY)
        directory = Path(path).parent
        while directory.is_relative_to(self.root):
            _sync_path(str(directory), os.O_RDONLY | os.O_DIRECTORY)
            directory = directory.parent


def _sync_path(path: str, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _s3_arguments(options: Mapping[str, str]) -> dict[str, object]:
    """Apache Fluss's S3 options as arguments of pyarrow's file system; missing ones come from the environment."""
    arguments: dict[str, object] = {
        "connect_timeout": S3_CONNECT_TIMEOUT_SECONDS,
        "request_timeout": S3_REQUEST_TIMEOUT_SECONDS,
    }
    for key, argument in (
        ("s3.access-key", "access_key"),
        ("s3.secret-key", "secret_key"),
        ("s3.region", "region"),
    ):
        if options.get(key):
            arguments[argument] = options[key]
    endpoint = options.get("s3.endpoint", "")
    if endpoint:
        scheme, separator, address = endpoint.partition("://")
        arguments["endpoint_override"] = address if separator else endpoint
        arguments["scheme"] = scheme if separator else "https"
    if options.get("s3.path-style-access", options.get("s3.path.style.access", "")) == "false":
        arguments["force_virtual_addressing"] = True
    return arguments
