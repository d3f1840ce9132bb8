"""The files of a store at one moment, ready to be copied away.

A checkpoint is a directory of hard links to the rows' files (`*.sst`, never changed once written) and of copies of the
few small files that say which of them belong to the database. So it costs no room and takes milliseconds.

The store's own note lies among the rows, under the empty key, and other readers of a snapshot would take it for a row.
The checkpoint is therefore opened once, by itself: its note tells exactly how much of the changelog these files have,
and is then deleted, which leaves one more small file. That file gets a number that the store will use for another file
later, so it must not be taken for one of the store's (`from_store`).
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
# What makes up a database besides the rows; everything else (locks, logs of what happened) stays behind.
_SMALL_FILES = ("CURRENT", "MANIFEST-", "OPTIONS-")
_OPEN_FILES = 16
_WRITE_BUFFER_BYTES = 64 * 1024


class CheckpointFile(NamedTuple):
    """One file. Of the same store, a file `from_store` of the same name is always the same file."""

    path: Path
    size_bytes: int
    has_rows: bool
    from_store: bool


class StoreFiles(NamedTuple):
    """Linked files, the store's note still among them, and which store they are from."""

    directory: Path
    store_id: str


class StoreCheckpoint(NamedTuple):
    """The files, how much of the changelog they contain, and which store they are from."""

    applied: Applied
    files: tuple[CheckpointFile, ...]
    store_id: str


def link_files(store: KvStore) -> StoreFiles:
    """Link the files of a store, which takes milliseconds if it was flushed a moment ago. OSError: not possible now.

    Called by the thread that writes to the store: in the middle of a write the note would lag behind the rows.
    """
    directory = checkpoint_directory(store.directory)
    store.link_files(directory)
    return StoreFiles(directory, store.identity)


def finish_checkpoint(linked: StoreFiles) -> StoreCheckpoint:
    """Make a database of its own out of linked files. Blocks; belongs into a worker thread."""
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
    """Remove what there is of a checkpoint of a store. Blocks."""
    shutil.rmtree(checkpoint_directory(store_directory), ignore_errors=True)


def checkpoint_directory(store_directory: Path) -> Path:
    """Where a checkpoint of a store lies while it is copied."""
    return store_directory.with_name(CHECKPOINT_DIRECTORY)


def _take_note(directory: Path) -> Applied:
    """Read the note and delete it."""
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
        raise OSError(f"the checkpoint in {directory} cannot be opened: {error}") from error
    # Opening wrote new ones; the old ones say nothing about this database any more.
    for path in sorted(directory.glob("OPTIONS-*"))[:-1]:
        path.unlink()
    return applied


def _options() -> Options:
    options = Options(raw_mode=True)
    options.set_disable_auto_compactions(True)  # The rows' files stay what they are in the store.
    options.set_max_open_files(_OPEN_FILES)
    options.set_write_buffer_size(_WRITE_BUFFER_BYTES)
    options.set_skip_stats_update_on_db_open(True)
    options.set_stats_dump_period_sec(0)
    options.set_stats_persist_period_sec(0)
    options.set_compression_type(DBCompressionType.lz4())
    options.set_block_based_table_factory(readable_table_options())
    return options
