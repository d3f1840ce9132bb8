"""The rows of a snapshot of a primary-key bucket: files in remote storage that are a RocksDB database.

The files are fetched under their local names into a separate directory, where RocksDB opens them for reading; files on
this machine are linked instead. Sizes are checked against the document that servers write beside the files: RocksDB
detects damage inside a file, but not that the end of its list of files is missing. Everything here blocks and must run
in a worker thread. Memory: one chunk of rows; disk: the snapshot, until its rows are read.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa

from fluss.client.keys.stored_values import RowReader
from fluss.client.net.metadata import ClientTable
from fluss.client.net.remote_files import FileSystems, Token, local_path
from fluss.client.net.session import Session
from fluss.errors import ErrorCode, FlussError
from fluss.model.paths import TableBucket
from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol.api_keys import ApiKey

CHUNK_ROWS = 20_000
CHUNK_BYTES = 16 * 1024 * 1024
_METADATA_NAME = "_METADATA"
_COPY_BYTES = 4 * 1024 * 1024


def snapshot_batches(
    session: Session, table: ClientTable, bucket: TableBucket, snapshot_id: int
) -> Iterator[pa.RecordBatch]:
    """Record batches with all columns of the table, in key order. FlussError 41 if the snapshot no longer exists."""
    files = session.run(_metadata(session, bucket, snapshot_id))
    remote = FileSystems(session.cluster)
    is_local = all(local_path(file.remote_path) is not None for file in files)
    token = Token() if is_local else session.run(remote.token())
    reader = RowReader(session, table)
    with tempfile.TemporaryDirectory(prefix="fluss-snapshot-") as directory:
        _fetch_all(files, token, Path(directory), session.config.remote_file_download_thread_num)
        _check_sizes(files, token, Path(directory))
        for values in _database_values(directory):
            unknown = reader.unknown_schemas_of(values)
            if unknown:
                session.run(reader.learn_on_io(unknown))
            yield reader.batch(values)


async def _metadata(session: Session, bucket: TableBucket, snapshot_id: int) -> list[pb.PbRemotePathAndLocalFile]:
    request = pb.GetKvSnapshotMetadataRequest(
        table_id=bucket.table_id,
        partition_id=bucket.partition_id,
        bucket_id=bucket.bucket_id,
        snapshot_id=snapshot_id,
    )
    answer = await session.cluster.call_coordinator(ApiKey.GET_KV_SNAPSHOT_METADATA, request, idempotent=True)
    return list(answer.snapshot_files)


def _fetch_all(files: list[pb.PbRemotePathAndLocalFile], token: Token, directory: Path, threads: int) -> None:
    def fetch(file: pb.PbRemotePathAndLocalFile) -> None:
        # A name from the network becomes a path here: only its last part is used.
        _fetch(file.remote_path, token, directory / Path(file.local_file_name).name)

    with ThreadPoolExecutor(threads, thread_name_prefix="fluss-snapshot") as pool:
        for _ in pool.map(fetch, files):
            continue


def _fetch(path: str, token: Token, target: Path) -> None:
    try:
        local = local_path(path)
        if local is not None:
            os.stat(local)
            target.symlink_to(local)
            return
        source = FileSystems.open(path, token)
        with source, target.open("xb") as file:
            while chunk := source.read(_COPY_BYTES):
                file.write(chunk)
    except FileNotFoundError as error:
        text = f"file {path} of a snapshot does not exist: it was superseded, or is on another machine ({error})"
        raise FlussError(text, ErrorCode.KV_SNAPSHOT_NOT_EXIST) from None
    except OSError as error:
        raise FlussError(f"file {path} of a snapshot cannot be read: {error}", ErrorCode.STORAGE_EXCEPTION) from error


def _check_sizes(files: list[pb.PbRemotePathAndLocalFile], token: Token, directory: Path) -> None:
    """FlussError 14 for a file whose size differs from that at the time of the snapshot."""
    folder = next((file.remote_path.rpartition("/")[0] for file in files if file.local_file_name == "CURRENT"), None)
    described = directory / _METADATA_NAME
    path = f"{folder}/{_METADATA_NAME}"
    try:
        _fetch(path, token, described)
    except FlussError as error:
        if error.error_code != ErrorCode.KV_SNAPSHOT_NOT_EXIST:
            raise
        return  # a server that stores it elsewhere
    try:
        handle = json.loads(described.read_bytes())["kv_snapshot_handle"]
        for entry in (*handle["shared_file_handles"], *handle["private_file_handles"]):
            actual, wanted = (
                (directory / Path(entry["local_path"]).name).stat().st_size,
                entry["kv_file_handle"]["size"],
            )
            if actual != wanted:
                raise FlussError(
                    f"file {entry['kv_file_handle']['path']} of a snapshot has {actual} bytes instead of {wanted}",
                    ErrorCode.CORRUPT_RECORD_EXCEPTION,
                )
    except (OSError, ValueError, KeyError, TypeError) as error:
        text = f"the description {path} does not fit its snapshot: {error!r}"
        raise FlussError(text, ErrorCode.CORRUPT_RECORD_EXCEPTION) from error
    described.unlink()


def _database_values(directory: str) -> Iterator[pa.Array]:
    """All values in key order, as binary arrays."""
    # Few programs read snapshots; the others need not load the database library.
    from rocksdict import AccessType, Options, Rdict

    families = {"default": Options(raw_mode=True)}
    try:
        access = AccessType.read_only(error_if_log_file_exist=False)
        database = Rdict(directory, Options(raw_mode=True), column_families=families, access_type=access)
        try:
            yield from _chunks(database)
        finally:
            database.close()
    except FlussError:
        raise
    except Exception as error:  # RocksDB's bindings raise plain Exception
        raise FlussError(f"a snapshot cannot be read: {error}", ErrorCode.CORRUPT_RECORD_EXCEPTION) from error


def _chunks(database: Any) -> Iterator[pa.Array]:
    chunk: list[bytes] = []
    size = 0
    rows = database.iter()
    rows.seek_to_first()
    while rows.valid():
        value = rows.value()
        chunk.append(value)
        size += len(value)
        if len(chunk) >= CHUNK_ROWS or size >= CHUNK_BYTES:
            yield pa.array(chunk, pa.binary())
            chunk, size = [], 0
        rows.next()
    rows.status()  # Raises if iteration stopped at a damaged block and not at the end.
    if chunk:
        yield pa.array(chunk, pa.binary())
