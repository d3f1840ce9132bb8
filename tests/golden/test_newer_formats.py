"""What a later version has written is refused with a sentence, and stays as it is."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import struct
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from rocksdict import Options, Rdict

import fluss
from fluss import FlussError
from fluss.codec.crc import crc32c
from fluss.lake.tables.interface.offsets import load_offsets
from fluss.model.paths import TableBucket, TablePath
from fluss.server.catalog.database_file import FORMAT_VERSION, stored_format_version
from fluss.server.process.data_directory import LOCK_FILE_NAME
from fluss.server.storage.files import FileSystem
from fluss.server.storage.kv.limits import KvResources
from fluss.server.storage.kv.store import NOTE_KEY, KvStore
from fluss.server.storage.kv_snapshot import snapshot_from_json
from fluss.server.storage.log.checkpoint import CHECKPOINT_NAME, Checkpoint, encode_checkpoint
from fluss.server.storage.log.options import LogOptions
from fluss.server.storage.log.recovery import Recovery
from fluss.server.storage.remote_store import RemoteStore
from fluss.server.storage.staged_files import StagedHeader, encode_header
from fluss.server.tablet.buckets.dropped_files import remove_directory
from fluss.server.tablet.kv_snapshots import record as snapshot_record
from fluss.server.tablet.remote import remote_log
from fluss.server.tablet.remote.manifest import RemoteManifest, RemoteRecord, record_to_json
from fluss.spark.stream.offsets import StreamOffsets
from tools.servers.server_process import ServerFailedError, ServerProcess

PATH, BUCKET = TablePath("fluss", "t"), TableBucket(3, None, 0)
SENTENCE = (
    r"has format version {found}, but this flusspy reads versions up to {known}: "
    r"use the version of flusspy that wrote it, or a newer one"
)


def refusal(found: int = 2, known: int = 1) -> str:
    return SENTENCE.format(found=found, known=known)


def contents(directory: Path) -> dict[str, str]:
    """Every file and its checksum."""
    files = [path for path in directory.rglob("*") if path.is_file() and path.name != LOCK_FILE_NAME]
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.fixture
def newer(tmp_path: Path) -> Path:
    """A data directory of the next version, with a table."""
    data = tmp_path / "data"
    with fluss.embedded(data) as cluster, fluss.connect(cluster.bootstrap_servers) as db:
        db.create_table("t", fluss.Schema.builder().column("id", fluss.DataTypes.int()).build())
        db.append("t", [(1,)])
    with closing(sqlite3.connect(data / "catalog.sqlite")) as connection:
        connection.execute(f"PRAGMA user_version = {FORMAT_VERSION + 1}")
    return data


def test_a_data_directory_is_refused_as_a_whole(newer: Path) -> None:
    before = contents(newer)
    text = f"data directory {newer} {refusal(FORMAT_VERSION + 1, FORMAT_VERSION)}"
    with pytest.raises(FlussError, match=text):
        fluss.embedded(newer)
    with pytest.raises(ServerFailedError, match=f"fluss server: {text}\n$"):
        ServerProcess(newer)
    assert contents(newer) == before


def test_the_version_is_read_where_it_was_written_last(newer: Path) -> None:
    """After a kill the newest version may be in SQLite's write-ahead log alone."""
    path = newer / "catalog.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        connection.execute("PRAGMA user_version = 9")
        for each in newer.glob("catalog.sqlite*"):
            (newer / f"copy-{each.name}").write_bytes(each.read_bytes())
    assert b"\x00\x00\x00\x09" not in (newer / "copy-catalog.sqlite").read_bytes()[60:64]
    assert stored_format_version(newer / "copy-catalog.sqlite") == 9
    assert stored_format_version(newer / "missing.sqlite") is None
    assert stored_format_version(newer / "ports.json") is None


def newer_checkpoint(bucket: Path) -> None:
    content = bytearray(encode_checkpoint(Checkpoint(0, 0, 0, 0, 0, 0, 0)))[:-4]
    content[4:6] = struct.pack("<H", 2)
    content += b"more"  # a later one may be longer; start and end stay what they are
    (bucket / CHECKPOINT_NAME).write_bytes(content + struct.pack("<I", crc32c(content)))


def newer_staged_file(bucket: Path) -> None:
    content = bytearray(encode_header(StagedHeader(3, 7, 5, "q1")))
    content[4:6] = struct.pack("<H", 2)
    (bucket / "staging").mkdir()
    (bucket / "staging" / "7.staged").write_bytes(content)


@pytest.mark.parametrize("make", [newer_checkpoint, newer_staged_file])
def test_a_bucket_with_such_a_file_is_not_opened(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path)
    (tmp_path / f"{CHECKPOINT_NAME}.tmp").touch()
    before = contents(tmp_path)
    with pytest.raises(FlussError, match=f"{tmp_path}.* {refusal()}"):
        Recovery(str(tmp_path), LogOptions(), FileSystem()).run()
    assert contents(tmp_path) == before


def test_a_key_value_store_is_not_taken_for_a_damaged_one(tmp_path: Path) -> None:
    resources = KvResources()
    KvStore.open(tmp_path / "db", resources).close()
    database = Rdict(str(tmp_path / "db"), Options(raw_mode=True))
    database[NOTE_KEY] = bytes([2]) + bytes(40)
    database.close()
    for _ in range(2):  # nothing is left locked by the first try
        with pytest.raises(FlussError, match=f"key-value store {tmp_path / 'db'} {refusal()}"):
            KvStore.open(tmp_path / "db", resources)


def newer_remote_record(bucket: Path) -> None:
    document = json.loads(record_to_json(RemoteRecord("/remote/x", RemoteManifest(PATH, BUCKET))))
    directory = bucket / remote_log.DIRECTORY_NAME
    directory.mkdir(parents=True)
    (directory / "remote-log.json").write_text(json.dumps({**document, "version": 2}))


def newer_snapshot_record(bucket: Path) -> None:
    record = snapshot_record.SnapshotRecord(PATH, BUCKET, None, "/remote/y")
    document = json.loads(snapshot_record.record_to_json(record))
    directory = bucket / snapshot_record.DIRECTORY_NAME
    directory.mkdir(parents=True)
    (directory / snapshot_record.RECORD_FILE_NAME).write_text(json.dumps({**document, "version": 2}))


@pytest.mark.parametrize(
    ("make", "read"),
    [(newer_remote_record, remote_log.read_record), (newer_snapshot_record, snapshot_record.read_record)],
)
def test_records_about_remote_storage(
    tmp_path: Path, make: Callable[[Path], None], read: Callable[[Path], object]
) -> None:
    """A dropped table keeps them, too: without its record its files in remote storage are unknown."""
    bucket = tmp_path / "t-3" / "log-0"
    make(bucket)
    before = contents(tmp_path)
    with pytest.raises(FlussError, match=f"{bucket}.* {refusal()}"):
        read(bucket)
    assert not remove_directory(tmp_path / "t-3", RemoteStore(str(tmp_path / "remote"), {}), FileSystem())
    assert contents(tmp_path) == before


def test_documents() -> None:
    with pytest.raises(FlussError, match=refusal()):
        load_offsets('{"version":2,"table_id":41,"somewhere":"else"}')
    with pytest.raises(FlussError, match=refusal()):
        snapshot_from_json('{"version":2}')
    with pytest.raises(FlussError, match=f"the stream's checkpoint {refusal(3, 2)}"):
        StreamOffsets.from_json({"version": 3, "table_id": 7, "places": []})
