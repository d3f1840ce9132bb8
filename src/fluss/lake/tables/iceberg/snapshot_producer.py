"""One round as one snapshot: files added, files replaced, rows deleted by position.

pyiceberg has no public way to add delete files, so this extends its append producer. It relies on these facts:
`_manifests` returns the manifests of the new snapshot and runs before `_summary`; the summary counts
`_added_data_files` and `_deleted_data_files`; `_process_manifests` merges small manifests. This is why pyproject.toml
allows only a narrow range of pyiceberg.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriter,
    ManifestWriterV2,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table import Transaction
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update.snapshot import _MergeAppendFiles
from pyiceberg.typedef import EMPTY_DICT

from fluss.lake.tables.iceberg.writing import DELETE_PATH_ID


class _DeleteManifestWriter(ManifestWriterV2):
    """A manifest of delete files."""

    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


class RoundProducer(_MergeAppendFiles):
    """Builds the snapshot of a round on the state with which the transaction was opened; fails on any other state."""

    def __init__(
        self,
        transaction: Transaction,
        added: Sequence[DataFile],
        removed: Sequence[DataFile],
        deletes: Sequence[DataFile],
        properties: dict[str, str],
        is_rewrite: bool = False,
    ) -> None:
        operation = Operation.OVERWRITE if removed or deletes else Operation.APPEND
        io = transaction._table.io
        super().__init__(operation, transaction, io, snapshot_properties=properties)
        self._is_rewrite = is_rewrite
        self._removed_paths = {file.file_path for file in removed}
        self._delete_targets = {target for file in deletes if (target := only_target(file)) is not None}
        for file in (*added, *deletes):
            self.append_data_file(file)

    def _refresh_for_retry(self) -> None:
        """Refuse a second attempt, whatever the table's settings: on another state it would skip the offset check."""
        raise CommitFailedException("the table has changed since it was loaded")

    def _summary(self, snapshot_properties: dict[str, str] = EMPTY_DICT) -> Summary:
        summary = super()._summary(snapshot_properties)
        # pyiceberg counts rows only for operations that change them, and `replace` is not one of them.
        return Summary(Operation.REPLACE, **summary.additional_properties) if self._is_rewrite else summary

    def _manifests(self) -> list[ManifestFile]:
        kept = self._kept_manifests()  # first: it checks that the round fits, before anything is written
        written = []
        for content in (DataFileContent.DATA, DataFileContent.POSITION_DELETES):
            files = [file for file in self._added_data_files if file.content == content]
            if files:
                written.append(self._write_added(files, content))
        return self._process_manifests(written + kept)

    def _write_added(self, files: Sequence[DataFile], content: DataFileContent) -> ManifestFile:
        is_data = content == DataFileContent.DATA
        kind = ManifestContent.DATA if is_data else ManifestContent.DELETES
        with self._writer(self._transaction.table_metadata.spec(), kind) as writer:
            for file in files:
                writer.add(_entry(ManifestEntryStatus.ADDED, self._snapshot_id, None, file))
        return writer.to_manifest_file()

    def _writer(self, spec: PartitionSpec, content: ManifestContent) -> ManifestWriter:
        if content == ManifestContent.DATA:
            return self.new_manifest_writer(spec)
        return _DeleteManifestWriter(
            spec, self.schema(), self.new_manifest_output(), self._snapshot_id, self._compression
        )

    def _kept_manifests(self) -> list[ManifestFile]:
        """The manifests of the previous state; those with files that are removed are rewritten."""
        manifests = self._existing_manifests()
        if not self._removed_paths and not self._delete_targets:
            return manifests
        entries = [self.fetch_manifest_entry(manifest) for manifest in manifests]
        self._check_files_are_there(manifests, entries)
        kept = []
        for manifest, of_manifest in zip(manifests, entries, strict=True):
            leaving = [entry for entry in of_manifest if self._leaves(entry.data_file)]
            kept.append(self._rewritten(manifest, of_manifest, leaving) if leaving else manifest)
        return kept

    def _check_files_are_there(self, manifests: Sequence[ManifestFile], entries: list[list[ManifestEntry]]) -> None:
        present = {
            entry.data_file.file_path
            for manifest, of_manifest in zip(manifests, entries, strict=True)
            if manifest.content == ManifestContent.DATA
            for entry in of_manifest
        }
        gone = sorted((self._removed_paths | self._delete_targets) - present)
        if gone:
            raise CommitFailedException(f"files that this round replaces are no longer in the table: {', '.join(gone)}")

    def _leaves(self, file: DataFile) -> bool:
        """True for a data file that is replaced, and for a delete file that applies to such a data file only."""
        path = file.file_path if file.content == DataFileContent.DATA else only_target(file)
        return path in self._removed_paths

    def _rewritten(
        self, manifest: ManifestFile, entries: Sequence[ManifestEntry], leaving: Sequence[ManifestEntry]
    ) -> ManifestFile:
        gone = {entry.data_file.file_path for entry in leaving}
        with self._writer(self.spec(manifest.partition_spec_id), manifest.content) as writer:
            for entry in entries:
                is_gone = entry.data_file.file_path in gone
                status = ManifestEntryStatus.DELETED if is_gone else ManifestEntryStatus.EXISTING
                snapshot_id = self._snapshot_id if is_gone else entry.snapshot_id
                writer.add_entry(_entry(status, snapshot_id, entry, entry.data_file))
        self._deleted_data_files.update(entry.data_file for entry in leaving)
        return writer.to_manifest_file()


def only_target(delete_file: DataFile) -> str | None:
    """The data file to which a delete file applies, if there is only one."""
    lower = (delete_file.lower_bounds or {}).get(DELETE_PATH_ID)
    upper = (delete_file.upper_bounds or {}).get(DELETE_PATH_ID)
    return lower.decode() if lower is not None and lower == upper else None


def _entry(
    status: ManifestEntryStatus, snapshot_id: int | None, of: ManifestEntry | None, file: DataFile
) -> ManifestEntry:
    return ManifestEntry.from_args(
        status=status,
        snapshot_id=snapshot_id,
        sequence_number=None if of is None else of.sequence_number,
        file_sequence_number=None if of is None else of.file_sequence_number,
        data_file=file,
    )
