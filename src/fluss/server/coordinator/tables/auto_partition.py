"""Auto-partitioning: partitions are created ahead of time, and dropped when they are too old.

Theory. The catalog is the only state: a pass over a table compares the existing partitions with the desired ones and
writes the difference. Passes run right after a table is created or altered, at the start of the coordinator, and then
at an interval; each may be repeated or lost without harm. Apache Fluss delays daily tables by a random time to spread
the load over a cluster; here a new partition is one row in the catalog, so nothing is delayed. Expired partitions of a
table with a lake are kept until the lake has them (`lake.partition_expiry`). Event-loop thread only.
"""

from __future__ import annotations

import logging

from fluss.errors import FlussError
from fluss.model.properties import AUTO_PARTITION_ENABLED
from fluss.server.apis.environment import Environment
from fluss.server.catalog import TableEntry
from fluss.server.coordinator.lake.partition_expiry import LakePartitionExpiry
from fluss.server.coordinator.tables.auto_partition_rules import AutoPartition, read_auto_partition
from fluss.server.coordinator.tables.replicas import check_placement

logger = logging.getLogger(__name__)


class AutoPartitioner:
    """Creates and drops the partitions of auto-partitioned tables according to their properties."""

    def __init__(self, environment: Environment, expiry: LakePartitionExpiry) -> None:
        self._environment = environment
        self._expiry = expiry

    def update_all(self) -> None:
        """Make a pass over all tables; failures are logged and do not affect other tables."""
        self._environment.catalog.refresh()
        for entry in list(self._environment.catalog.tables()):
            self.update_table(entry)

    def update_table(self, entry: TableEntry) -> None:
        """Make a pass over one table; failures are logged, and the next pass tries again."""
        if not entry.is_partitioned or not entry.property(AUTO_PARTITION_ENABLED):
            return
        try:
            settings = read_auto_partition(entry.descriptor)
            self._drop_expired(entry, settings)
            self._create_missing(entry, settings)
        except (FlussError, ValueError, OverflowError) as error:
            logger.warning("auto-partitioning of table %s failed, the next pass tries again: %s", entry.path, error)

    def _create_missing(self, entry: TableEntry, settings: AutoPartition) -> None:
        if len(entry.descriptor.partition_keys) > 1:
            return  # the values of the other keys are unknown
        config = self._environment.config
        now_ms = self._environment.clock()
        wanted_count = min(settings.num_precreate, config.max_partition_num)
        wanted = dict.fromkeys(settings.value_at(now_ms, units) for units in range(wanted_count))
        missing = [name for name in wanted if name not in entry.partitions]
        room = config.max_partition_num - len(entry.partitions)
        if len(missing) > room:
            logger.warning(
                "table %s has %d of at most %d partitions; not creating %s",
                entry.path,
                len(entry.partitions),
                config.max_partition_num,
                ", ".join(missing[max(room, 0) :][:3]),
            )
            missing = missing[: max(room, 0)]
        if missing:
            check_placement(self._environment, entry.descriptor)
            self._environment.catalog.store.create_partitions(entry.path, entry.table_id, missing)
            self._environment.catalog.refresh()
            logger.info("created partitions %s of table %s", ", ".join(missing), entry.path)

    def _drop_expired(self, entry: TableEntry, settings: AutoPartition) -> None:
        oldest = settings.oldest_retained(self._environment.clock())
        if oldest is None:
            self._expiry.droppable(entry, ())
            return
        position = settings.key_position
        expired = [name for name, partition in entry.partitions.items() if partition.values[position] < oldest]
        expired = self._expiry.droppable(entry, expired)
        if expired:
            self._environment.catalog.store.drop_partitions(entry.path, entry.table_id, expired)
            self._environment.catalog.refresh()
            logger.info("dropped expired partitions %s of table %s", ", ".join(expired), entry.path)
