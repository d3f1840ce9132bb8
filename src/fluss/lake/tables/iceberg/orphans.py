"""Files that no snapshot knows, left by rounds that died before their commit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow.fs as pa_fs
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from fluss.errors import ErrorCode, FlussError
from fluss.lake.tables.iceberg.catalog import catalog_errors
from fluss.lake.tables.iceberg.last_round import kept_round
from fluss.lake.tables.interface.format import OFFSETS_PROPERTY

NANOSECONDS_PER_MILLISECOND = 1_000_000


def unreferenced_files(table: Table, older_than_ms: int) -> list[str]:
    """Addresses of files under the table's location that are unknown to its metadata and older than `older_than_ms`.

    Files of a running round are unknown too, so the age has to be larger than the longest round.
    """
    with catalog_errors(f"listing the files of lake table {'.'.join(table.name())}"):
        known = set(_known_files(table))
        limit_ns = older_than_ms * NANOSECONDS_PER_MILLISECOND
        return sorted(path for path, modified_ns in _files(table) if path not in known and modified_ns < limit_ns)


def _files(table: Table) -> Iterator[tuple[str, int]]:
    io = table.io
    if not isinstance(io, PyArrowFileIO):
        raise FlussError(
            f"files of {table.location()} cannot be listed by {type(io).__name__}; set 'py-io-impl' of the catalog to "
            "pyiceberg.io.pyarrow.PyArrowFileIO",
            ErrorCode.INVALID_CONFIG_EXCEPTION,
        )
    scheme, network_location, path = io.parse_location(table.location())
    filesystem = io.fs_by_scheme(scheme, network_location)
    prefix = table.location()[: len(table.location()) - len(path)]
    for info in filesystem.get_file_info(pa_fs.FileSelector(path, recursive=True, allow_not_found=True)):
        if info.type == pa_fs.FileType.File:
            yield prefix + info.path, info.mtime_ns or 0


def _known_files(table: Table) -> Iterator[str]:
    metadata = table.metadata
    yield table.metadata_location
    yield from (entry.metadata_file for entry in metadata.metadata_log)
    yield from (each.statistics_path for each in metadata.statistics)
    yield from (each.statistics_path for each in metadata.partition_statistics)
    kept = kept_round(table)
    if kept is not None:
        yield kept[1]
    yield from files_of_snapshots(table, metadata.snapshots)


def files_of_snapshots(table: Table, snapshots: Iterable[Snapshot]) -> Iterator[str]:
    """All files that are needed to read these snapshots.

    A file that a manifest only lists as deleted is not needed: later snapshots keep such manifests for long.
    """
    seen: set[str] = set()
    for snapshot in snapshots:
        yield snapshot.manifest_list
        if snapshot.summary is not None:
            yield snapshot.summary.additional_properties.get(OFFSETS_PROPERTY, "")
        for manifest in snapshot.manifests(table.io):
            if manifest.manifest_path in seen:
                continue
            seen.add(manifest.manifest_path)
            yield manifest.manifest_path
            yield from (entry.data_file.file_path for entry in manifest.fetch_manifest_entry(table.io, True))
