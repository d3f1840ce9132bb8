"""The limits of maintenance: when it is due and how far it goes, from properties of the lake table with defaults.

A Fluss table sets these properties with the prefix `iceberg.` (`iceberg.history.expire.max-snapshot-age-ms`), like all
properties of its lake table. `table.datalake.auto-compaction` and `table.datalake.auto-expire-snapshot` control what
happens automatically after a round; both are on unless set to false. Jobs that a user starts always run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fluss.errors import ErrorCode, FlussError

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
MIB = 1 << 20

# Lower bounds for the properties. A reader that has just planned a snapshot needs time to read it; a round may run for
# long before its commit. A round and a compaction may be in the lake without being registered yet, and readers then
# still plan the snapshot before those two.
MIN_SUPERSEDED_MS = 10 * MINUTE_MS
MIN_KEPT_SNAPSHOTS = 3
MIN_ORPHAN_AGE_MS = HOUR_MS


@dataclass(frozen=True)
class MaintenanceOptions:
    """Limits with their units; the defaults suit a table that is tiered every few minutes.

    >>> MaintenanceOptions.of({"maintenance.compaction.min-files": "8"}).compaction_min_files
    8
    """

    target_file_bytes: int = 128 * MIB
    """Files are written until they reach this size; `write.target-file-size-bytes`."""
    small_file_share: float = 0.75
    """A file below this share of the target size is small."""
    compaction_min_files: int = 5
    """This many neighbouring small files of a bucket are worth a rewrite."""
    compaction_max_deleted_share: float = 0.3
    """A file with more hidden rows than this share is rewritten."""
    compaction_max_delete_files: int = 10
    """A file with this many delete files is rewritten too, because every read opens them all."""
    max_snapshot_age_ms: int = DAY_MS
    """Snapshots are kept for this long after they ceased to be the newest."""
    min_snapshots: int = 20
    """At least this many snapshots are kept, however old they are."""
    expiry_batch: int = 10
    """Automatic expiry starts when this many snapshots can be removed, because it reads all manifests."""
    orphan_age_ms: int = DAY_MS
    """Files that no snapshot knows are removed if they are older than this."""
    orphan_interval_ms: int = DAY_MS
    """How often such files are searched for automatically; each search lists the whole directory."""

    @classmethod
    def of(cls, lake_properties: Mapping[str, str]) -> MaintenanceOptions:
        """The options of a lake table; an invalid value is an error that names the property."""
        given: dict[str, Any] = {}
        for key, (name, parse) in _PROPERTIES.items():
            if key in lake_properties:
                given[name] = _parsed(key, lake_properties[key], parse)
        options = cls(**given)
        return cls(
            **{
                **vars(options),
                "max_snapshot_age_ms": max(options.max_snapshot_age_ms, MIN_SUPERSEDED_MS),
                "min_snapshots": max(options.min_snapshots, MIN_KEPT_SNAPSHOTS),
                "orphan_age_ms": max(options.orphan_age_ms, MIN_ORPHAN_AGE_MS),
            }
        )


_PROPERTIES: Mapping[str, tuple[str, type[int] | type[float]]] = {
    "write.target-file-size-bytes": ("target_file_bytes", int),
    "maintenance.compaction.small-file-share": ("small_file_share", float),
    "maintenance.compaction.min-files": ("compaction_min_files", int),
    "maintenance.compaction.max-deleted-share": ("compaction_max_deleted_share", float),
    "maintenance.compaction.max-delete-files": ("compaction_max_delete_files", int),
    "history.expire.max-snapshot-age-ms": ("max_snapshot_age_ms", int),
    "history.expire.min-snapshots-to-keep": ("min_snapshots", int),
    "maintenance.expire.batch": ("expiry_batch", int),
    "maintenance.orphans.min-age-ms": ("orphan_age_ms", int),
    "maintenance.orphans.interval-ms": ("orphan_interval_ms", int),
}


def _parsed(key: str, text: str, parse: type[int] | type[float]) -> int | float:
    try:
        value = parse(text)
    except ValueError:
        value = parse(-1)
    if value < 0:
        raise FlussError(
            f"property {key!r} of the lake table must be a number that is not negative, got {text!r}: set "
            f"'iceberg.{key}' of the table",
            ErrorCode.INVALID_CONFIG_EXCEPTION,
        )
    return value
