"""The files of a store at one moment, ready to be copied.

A checkpoint is a directory of hard links to the files with rows (`*.sst`, which never change once written) and of
copies of the few small files that list which of them belong to the database. So it takes no disk space and only
milliseconds.

The store keeps its `Applied` note among the rows, under the empty key, and other readers of a snapshot would take it
for a row. The checkpoint is therefore opened once as a database of its own: its note states exactly how much of the
changelog these files contain, and is then deleted, which adds one more small file. That file gets a number that the
store will use for another file later, so it must not be taken for one of the store's (`from_store`).
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple

from rocksdict import DBCompressionType, Options, Rdict

from fluss.server.storage.kv.store import (
    NOTE_KEY,
    Applied,
    KvStore,
    StoreDamagedError,
    read_note,
)
from fluss.server.storage.kv.store_options import readable_table_options, without_log

CHECKPOINT_DIRECTORY = "checkpoint"
ROWS_SUFFIX = ".sst"
# The other files that belong to a database; everything else (locks, RocksDB's own log) is not copied.
_SMALL_FILES = ("CURRENT", "MANIFEST-", "OPTIONS-")
_OPEN_FILES = 16
_WRITE_BUFFER_BYTES = 64 * 1024


class CheckpointFile(NamedTuple):
    """One file of a checkpoint. With `from_store` set, files of a store with the same name have the same content."""

    path: Path
    size_bytes: int
    has_rows: bool
    from_store: bool


class StoreFiles(NamedTuple):
    """Linked files that still contain the store's note, and the identity of the store."""

    directory: Path
    store_id: str


class StoreCheckpoint(NamedTuple):
    """The files, how much of the changelog they contain, and the identity of the store."""

    applied: Applied
    files: tuple[CheckpointFile, ...]
    store_id: str


def link_files(store: KvStore) -> StoreFiles:
    """Link the files of a store; takes milliseconds if it was just flushed. OSError if that is not possible now.

    Call it in the thread that writes to the store: in the middle of a write the note would lag behind the rows.
    """
    directory = checkpoint_directory(store.directory)
    store.link_files(directory)
    return StoreFiles(directory, store.identity)


def finish_checkpoint(linked: StoreFiles) -> StoreCheckpoint:
    """Turn linked files into a database of its own. Blocks: call it in a worker thread."""
    directory = linked.directory
    names = {path.name for path in directory.glob("*" + ROWS_SUFFIX)}
    applied = _take_note(directory)
    files = tuple(
        CheckpointFile(path, path.stat().st_size, path.suffix == ROWS_SUFFIX, path.name in names)
        for path in sorted(directory.iterdir())
        if path.suffix == ROWS_SUFFIX or path.name.startswith(_SMALL_FILES)
    )
    return StoreCheckpoint(applied, files, linked.store_id)


def remove_checkpoint(store_directory: Path) -> None:
    """Remove the checkpoint of a store, even an incomplete one. Blocks."""
    shutil.rmtree(checkpoint_directory(store_directory), ignore_errors=True)


def checkpoint_directory(store_directory: Path) -> Path:
    """The directory of a store's checkpoint while it is copied."""
    return store_directory.with_name(CHECKPOINT_DIRECTORY)


def _take_note(directory: Path) -> Applied:
    """Read the note of the store in a checkpoint, and delete it there."""
    try:
        database = Rdict(str(directory), _options(), column_families={"default": _options()})
        try:
            applied = read_note(database.get(NOTE_KEY), directory)
            database.delete(NOTE_KEY, write_opt=without_log())
            database.flush(True)
        finally:
            database.close()
    except StoreDamagedError as error:
        raise OSError(str(error)) from error
    except Exception as error:  # RocksDB's bindings raise plain Exception
        raise OSError(f"cannot open the checkpoint in {directory}: {error}") from error
    # Opening the database wrote a new file of options; the older ones no longer apply.
    for path in sorted(directory.glob("OPTIONS-*"))[:-1]:
        path.unlink()
    return applied


def _options() -> Options:
    options = Options(raw_mode=True)
    options.set_disable_auto_compactions(True)  # The files with rows stay the same as in the store.
    options.set_max_open_files(_OPEN_FILES)
    options.set_write_buffer_size(_WRITE_BUFFER_BYTES)
    options.set_skip_stats_update_on_db_open(True)
    options.set_stats_dump_period_sec(0)
    options.set_stats_persist_period_sec(0)
    options.set_compression_type(DBCompressionType.lz4())
    options.set_block_based_table_factory(readable_table_options())
    return options
