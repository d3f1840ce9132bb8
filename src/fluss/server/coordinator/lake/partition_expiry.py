"""Expired partitions of tables with a lake: they are dropped when the lake has all of their rows.

Theory. An expired partition is closed: it takes no more rows, its ends are final (`catalog.closing_records`), and its
table is due for tiering at once. Every pass of the auto-partitioner asks again which expired partitions may be dropped:
those that the lake has up to their ends, and those that have waited `lake.expired-partition.max-wait`, because the disk
must not fill up if no tiering service runs. A partition whose retention was raised meanwhile is reopened.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from fluss.model.paths import TableBucket
from fluss.model.properties import DATALAKE_ENABLED
from fluss.server.apis.environment import Environment
from fluss.server.catalog import PartitionEntry, TableEntry

logger = logging.getLogger(__name__)


class LakePartitionExpiry:
    """Decides which expired partitions may be dropped. Called on the event loop."""

    def __init__(self, environment: Environment, make_due: Callable[[int], None]) -> None:
        self._environment = environment
        self._make_due = make_due

    def waiting_tables(self) -> list[TableEntry]:
        """Return the tables with partitions that wait for the lake."""
        catalog = self._environment.catalog
        catalog.refresh()
        entries = (catalog.table_by_id(table_id) for table_id in set(catalog.store.closing.all().values()))
        return [entry for entry in entries if entry is not None]

    def droppable(self, entry: TableEntry, expired: Iterable[str]) -> list[str]:
        """Return the expired partitions that may be dropped; close the others, and make their table due."""
        partitions = [entry.partitions[name] for name in expired]
        closing = self._environment.catalog.store.closing
        since = closing.of_table(entry.table_id)
        if not entry.property(DATALAKE_ENABLED):
            self._reopen(entry, since)
            return [partition.name for partition in partitions]
        self._reopen(entry, since.keys() - {partition.partition_id for partition in partitions})
        now_ms = self._environment.clock()
        new = [partition for partition in partitions if partition.partition_id not in since]
        if new and self._environment.config.lake_expired_partition_max_wait_ms > 0:
            closing.close([partition.partition_id for partition in new], now_ms)
            self._environment.catalog.refresh()
            since |= dict.fromkeys((partition.partition_id for partition in new), now_ms)
            names = ", ".join(partition.name for partition in new)
            logger.info("partitions %s of table %s expired; they are dropped when the lake has them", names, entry.path)
        droppable = [
            partition.name
            for partition in partitions
            if self._is_tiered(entry, partition) or self._waited(entry, partition, since.get(partition.partition_id))
        ]
        if len(droppable) < len(partitions):
            self._make_due(entry.table_id)
        return droppable

    def _reopen(self, entry: TableEntry, partition_ids: Iterable[int]) -> None:
        wanted = list(partition_ids)
        if wanted:
            self._environment.catalog.store.closing.reopen(wanted)
            self._environment.catalog.refresh()
            logger.info("reopened %d expired partitions of table %s", len(wanted), entry.path)

    def _is_tiered(self, entry: TableEntry, partition: PartitionEntry) -> bool:
        store = self._environment.catalog.store
        ends = store.closing.ends(partition.partition_id)
        return len(ends) == entry.bucket_count and all(
            store.lake.end_offset(TableBucket(entry.table_id, partition.partition_id, bucket_id)) >= end
            for bucket_id, end in ends.items()
        )

    def _waited(self, entry: TableEntry, partition: PartitionEntry, since_ms: int | None) -> bool:
        limit_ms = self._environment.config.lake_expired_partition_max_wait_ms
        waited_ms = 0 if since_ms is None else self._environment.clock() - since_ms
        if waited_ms < limit_ms:
            return False
        logger.warning(
            "dropping expired partition %s of table %s although not all of its rows are in the lake: it waited %d ms "
            "(lake.expired-partition.max-wait); check that a tiering service runs",
            partition.name,
            entry.path,
            waited_ms,
        )
        return True
