"""The options of a tiering service; every limit has its unit in its name. Immutable; sent to tasks with the work."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

MIB = 1 << 20


@dataclass(frozen=True)
class TieringOptions:
    """The options of one service. The defaults suit a machine with a few cores; docs/lakehouse.md explains each option.

    >>> TieringOptions(heartbeat_seconds=5.0).heartbeat_seconds
    5.0
    """

    cores: int = field(default_factory=lambda: os.cpu_count() or 1)
    """The number of splits that the engine runs at the same time; a large bucket is cut to keep all of them busy."""
    tables_at_once: int = 2
    """The number of tables that one service works on at the same time."""
    min_split_bytes: int = 32 * MIB
    max_split_bytes: int = 128 * MIB
    """The size of a log range, as stored, that becomes one task; every task writes at least one file."""
    max_changes_bytes: int = 256 * MIB
    """Memory for the changes of one primary-key bucket; a round takes no more of a changelog than fits."""
    position_deletes_from_bytes: int = 32 * MIB
    """A primary-key bucket with less than this in the lake is always rewritten (copy-on-write)."""
    position_deletes_max_share: float = 0.1
    """Up to this share of changed rows, old rows of a large bucket are hidden by position deletes instead."""
    max_files_per_bucket: int = 32
    """A bucket with this many files is rewritten, whatever its size."""
    max_deleted_share: float = 0.25
    """A bucket with this share of hidden rows is rewritten too."""
    min_round_seconds: float = 10.0
    """A round may always take this long, even if the freshness of the table is shorter."""
    max_round_seconds: float = 1800.0
    """A round never takes longer than this, whatever the freshness: its files must not look like a dead round's."""
    heartbeat_seconds: float = 30.0
    """How often a heartbeat is sent during a round; the coordinator's timeout is two minutes."""
    on_data_loss: Literal["fail", "skip"] = "fail"
    """If rows expired before they were tiered: raise an error, or log a warning and tier the remaining rows."""
    patience_seconds: float = 60.0
    """How long a split waits for a server that does not answer."""
    maintenance: bool = True
    """Do due maintenance after a round: compaction, expiry, orphans. Properties of the table can also disable it."""
    lake_overrides: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Catalog properties that the server does not send, such as secrets."""
