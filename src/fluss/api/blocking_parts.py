"""The parts of `Database`: cached writers and lookupers, writes of rows in any form, and new partitions in `follow`."""

from __future__ import annotations

import concurrent.futures
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from fluss.errors import ErrorCode, FlussError
from fluss.lazy_imports import import_lock
from fluss.values.basic import TableBucket, TablePath

if TYPE_CHECKING:
    from fluss.client.calls.table_info import TableInfo
    from fluss.client.scan.scanner_core import ScannerCore

MAX_KEPT_WRITERS_AND_LOOKUPERS = 2000
PARTITION_LOOK_SECONDS = 5.0
"""How often `follow` looks for new partitions."""

_Key = tuple[TablePath, str, tuple[str, ...] | None]


class Kept:
    """Writers and lookupers, cached by table, kind and the columns that they write or look up by. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[_Key, Any] = {}
        self._forgotten = 0

    def get(self, path: TablePath, kind: str, columns: Sequence[str] | None, make: Callable[[], Any]) -> Any:
        """The cached writer or lookuper, or a new one. `make` calls the server, so it runs without the lock."""
        key = (path, kind, None if columns is None else tuple(columns))
        with self._lock:
            known, forgotten = self._kept.get(key), self._forgotten
        if known is not None:
            return known
        made = make()
        with self._lock:
            if forgotten != self._forgotten:  # perhaps the entry of this table, which may have been recreated
                return made
            if len(self._kept) >= MAX_KEPT_WRITERS_AND_LOOKUPERS:
                self._kept.pop(next(iter(self._kept)))
            return self._kept.setdefault(key, made)

    def forget(self, path: TablePath) -> None:
        """Drop everything cached for a table."""
        with self._lock:
            self._forgotten += 1
            self._kept = {key: kept for key, kept in self._kept.items() if key[0] != path}


class Verb:
    """One way to write: its name, and the calls of a writer for a row, Arrow data and a pandas DataFrame."""

    def __init__(self, name: str, one: str, arrow: str, pandas: str) -> None:
        self.name, self._one, self._arrow, self._pandas = name, one, arrow, pandas

    def write(self, rows: Any, columns: Sequence[str] | None, new_writer: Callable[[bool], Any]) -> None:
        """Pass rows of any accepted form to a writer and wait until they are durable.

        `new_writer(True)` reopens the table: another program may have added columns that the rows have.
        """
        writers = [new_writer(False)]

        def hand_over(call: str, value: object) -> None:
            try:
                getattr(writers[-1], call)(value)
            except FlussError as error:
                with import_lock:
                    from fluss.client.write.base_writer import table_of

                known = columns or table_of(writers[-1]).schema.column_names
                if len(writers) > 1 or error.error_code != ErrorCode.CLIENT_ERROR or not _has_more(value, known):
                    raise
                writers.append(new_writer(True))
                getattr(writers[-1], call)(value)

        if isinstance(rows, (pa.Table, pa.RecordBatch, pa.RecordBatchReader)):
            hand_over(self._arrow, rows)
        elif isinstance(rows, Mapping):
            hand_over(self._one, dict(rows))
        elif hasattr(rows, "to_arrow"):  # polars
            hand_over(self._arrow, _table_of_polars(rows))
        elif hasattr(rows, "iloc"):  # pandas
            hand_over(self._pandas, rows)
        elif isinstance(rows, (str, bytes)) or not isinstance(rows, Iterable):
            text = f"{self.name} accepts rows as dicts, tuples, Arrow or a DataFrame, got {type(rows).__name__}"
            raise FlussError(text)
        else:
            for number, row in enumerate(rows):
                try:
                    hand_over(self._one, row)
                except FlussError as error:
                    text = f"row {number}: {error.message}{_rows_not_written(writers)}"
                    raise FlussError(text, error.error_code) from None
        for writer in writers:
            writer.flush().result()


def _rows_not_written(writers: Sequence[Any]) -> str:
    """Wait until the rows before a refused one are durable; describe why, if some are not."""
    try:
        for writer in writers:
            writer.flush().result()
    except FlussError as error:
        return f"; not all rows before it were written: {error.message}"
    return ""


APPEND = Verb("append", "append", "write_arrow", "write_pandas")
UPSERT = Verb("upsert", "upsert", "upsert_arrow", "upsert_pandas")
DELETE = Verb("delete", "delete", "delete_arrow", "delete_pandas")


def check_deletes(info: TableInfo) -> None:
    """Raise for a table with an auto-increment column: no server deletes its value, so the row would remain."""
    automatic = info.get_schema().get_auto_increment_columns()
    if automatic:
        raise FlussError(
            f"table {info.table_path}: rows with the auto-increment column {automatic[0]!r} cannot be deleted, "
            "because no server supports it; upsert them with nulls in the other columns",
            ErrorCode.INVALID_TARGET_COLUMN,
        )


def _table_of_polars(frame: Any) -> Any:
    with import_lock:
        from fluss.client.input.frame_input import table_of_polars

    return table_of_polars(frame)


def _has_more(value: Any, known: Sequence[str]) -> bool:
    """True if a row, or a table of rows, has unknown columns."""
    if isinstance(value, (list, tuple)):
        return len(value) > len(known)
    if isinstance(value, pa.RecordBatchReader):
        return False  # e.g. a generator: some of its rows may have been written already, so it cannot be repeated
    if isinstance(value, (pa.Table, pa.RecordBatch)):
        value = value.schema.names
    elif not isinstance(value, Mapping):
        value = getattr(value, "columns", ())
    return not set(value) <= set(known)


class PartitionWatch:
    """Subscribes a scanner to partitions created while it reads, from their start. One thread calls `look`."""

    def __init__(self, core: ScannerCore) -> None:
        self._core = core
        self._asked: concurrent.futures.Future[list[TableBucket]] | None = None
        self._next_look = time.monotonic() + PARTITION_LOOK_SECONDS

    def look(self) -> None:
        """If it is time, ask the server for partitions without waiting; subscribe to new ones once it has answered."""
        if not self._core.table.is_partitioned:
            return
        if self._asked is None:
            if time.monotonic() >= self._next_look:
                self._asked = self._core.session.io.submit(self._core.all_buckets())
            return
        if not self._asked.done():
            return
        asked, self._asked = self._asked, None
        self._next_look = time.monotonic() + PARTITION_LOOK_SECONDS
        try:
            self._core.subscribe_added(asked.result())
        except FlussError as error:
            if not error.is_retriable:  # a later call may succeed
                raise
