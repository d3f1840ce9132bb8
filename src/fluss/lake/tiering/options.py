"""How a tierer works; every limit has its unit in its name. Immutable; goes to tasks with the work."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

MIB = 1 << 20


@dataclass(frozen=True)
class TieringOptions:
    """Defaults suit a machine with a few cores; `docs/lakehouse.md` says what each is good for.

    >>> TieringOptions(heartbeat_seconds=5.0).heartbeat_seconds
    5.0
    """

    cores: int = field(default_factory=lambda: os.cpu_count() or 1)
    """Splits that the engine runs at the same time: a large bucket is cut so that all of them have work."""
    tables_at_once: int = 2
    """Tables that one tierer works on at the same time."""
    min_split_bytes: int = 32 * MIB
    max_split_bytes: int = 128 * MIB
    """Stored bytes of a log range that become one task; every task makes at least one file."""
    max_changes_bytes: int = 256 * MIB
    """Memory for the changes of one primary-key bucket; a round takes no more of a changelog than fits."""
    position_deletes_from_bytes: int = 32 * MIB
    """A primary-key bucket with less than this in the lake is always written anew (copy-on-write)."""
    position_deletes_max_share: float = 0.1
    """Up to this share of changed rows, old rows of a large bucket are hidden by position deletes instead."""
    max_files_per_bucket: int = 32
    """A bucket with as many files is written anew, whatever its size."""
    max_deleted_share: float = 0.25
    """As is one with this share of hidden rows."""
    min_round_seconds: float = 10.0
    """A round may always take so long, also where the freshness of the table is shorter."""
    max_round_seconds: float = 1800.0
    """And never longer, whatever the freshness: files of a round must not look like those of one that died."""
    heartbeat_seconds: float = 30.0
    """How often the coordinator is told that a round goes on; it waits for two minutes."""
    on_data_loss: Literal["fail", "skip"] = "fail"
    """Rows that expired from the log before they were tiered: an error, or a warning and the rows that are left."""
    patience_seconds: float = 60.0
    """How long a split waits for a server that is away."""
    maintenance: bool = True
    """After a round, upkeep that is due: compaction, expiry, orphans. The properties of the table decide, too."""
    lake_overrides: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Catalog properties that the server does not tell, such as secrets."""
