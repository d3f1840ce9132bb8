"""What every API handler of a role needs: configuration, metadata, addresses, clock and authorizer."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from fluss.errors import ErrorCode, FlussError
from fluss.model.paths import TablePath
from fluss.protocol import fluss_api_pb2 as pb
from fluss.server.apis.authorizer import Authorizer
from fluss.server.apis.topology import Topology
from fluss.server.catalog import Catalog, TableEntry
from fluss.server.catalog.store import table_missing
from fluss.server.config.server_config import ServerConfig
from fluss.server.storage.files import FileSystem
from fluss.server.storage.log.options import RESERVED_FREE_BYTES

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Environment:
    """Configuration, metadata, addresses, the clock (epoch milliseconds) and the authorizer of one process."""

    config: ServerConfig
    catalog: Catalog
    topology: Topology
    clock: Callable[[], int]
    authorizer: Authorizer

    @staticmethod
    def of(config: ServerConfig, catalog: Catalog, topology: Topology, clock: Callable[[], int]) -> Environment:
        """Return the environment of a process, with an authorizer made for it."""
        return Environment(config, catalog, topology, clock, Authorizer(config, catalog))

    def table(self, path: TablePath) -> TableEntry:
        """Return a table; code 7 if it does not exist. The caller has refreshed the catalog."""
        entry = self.catalog.table(path)
        if entry is None:
            raise table_missing(path)
        return entry

    def check_disk_room(self, what: str) -> None:
        """Raise code 70 when the disk is so full that the remaining space is reserved for dropping tables."""
        free = FileSystem().free_bytes(str(self.config.data_dir))
        if free < RESERVED_FREE_BYTES:
            refusal = FlussError(
                f"no space left on the disk of {self.config.data_dir} for {what}: {free} bytes free, "
                f"{RESERVED_FREE_BYTES} are reserved for metadata. Free some space (drop tables, lower table.log.ttl, "
                "enlarge the disk) and try again",
                ErrorCode.DISK_WRITE_LOCKED,
            )
            logger.warning("%s", refusal.message)
            raise refusal

    def fresh_table(self, path: TablePath) -> TableEntry:
        """Refresh the catalog and return the table; every read-only request about a table starts with it."""
        self.catalog.refresh()
        return self.table(path)


def table_path(message: pb.PbTablePath) -> TablePath:
    """Convert the table path in a message to a `TablePath`."""
    return TablePath(message.database_name, message.table_name)
