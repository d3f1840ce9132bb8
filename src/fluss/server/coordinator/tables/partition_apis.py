"""CREATE_PARTITION and DROP_PARTITION.

On the wire, the flag of CREATE_PARTITION is named `ignore_if_not_exists`; it means "ignore if it exists".
"""

from __future__ import annotations

from fluss.errors import ErrorCode, FlussError
from fluss.model import properties as keys
from fluss.model.names import HISTORICAL_PARTITION, PARTITION_NAME_SEPARATOR, check_partition_value
from fluss.protocol import fluss_api_pb2 as pb
from fluss.server.apis.environment import Environment, table_path
from fluss.server.apis.read_apis import check_partitioned, partition_spec
from fluss.server.catalog import TableEntry
from fluss.server.catalog.store import partition_exists, partition_missing
from fluss.server.coordinator.tables.auto_partition_rules import read_auto_partition
from fluss.server.coordinator.tables.replicas import check_placement
from fluss.server.coordinator.tables.table_rules import check_bucket_count
from fluss.server.runtime.handlers import RequestContext


class PartitionApis:
    """Handlers for partitions that users create and drop, or that clients create for a new value."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment

    def create_partition(
        self, context: RequestContext, request: pb.CreatePartitionRequest
    ) -> pb.CreatePartitionResponse:
        environment = self._environment
        entry = self._partitioned_table(request.table_path)
        values = _checked_values(entry, request.partition_spec, internal_prefix_allowed=False)
        self._check_time(entry, values)
        name = PARTITION_NAME_SEPARATOR.join(values)
        if name in entry.partitions:
            if request.ignore_if_not_exists:
                return pb.CreatePartitionResponse()
            raise partition_exists(entry.path, name)
        limit = environment.config.max_partition_num
        if len(entry.partitions) + 1 > limit:
            raise FlussError(
                f"table '{entry.path}' has {len(entry.partitions)} partitions and the limit is {limit}; drop old ones "
                "or raise the server option 'max.partition.num'",
                ErrorCode.PARTITION_MAX_NUM_EXCEPTION,
            )
        check_bucket_count(entry.descriptor, environment.config.max_bucket_num)
        check_placement(environment, entry.descriptor)
        environment.check_disk_room(f"partition '{name}' of table '{entry.path}'")
        environment.catalog.store.create_partitions(entry.path, entry.table_id, [name])
        return pb.CreatePartitionResponse()

    def drop_partition(self, context: RequestContext, request: pb.DropPartitionRequest) -> pb.DropPartitionResponse:
        entry = self._partitioned_table(request.table_path)
        values = _checked_values(entry, request.partition_spec, internal_prefix_allowed=True)
        name = PARTITION_NAME_SEPARATOR.join(values)
        if name == HISTORICAL_PARTITION and entry.property(keys.DATALAKE_HISTORICAL_PARTITION):
            raise FlussError(
                f"partition {name!r} of table '{entry.path}' belongs to the server while "
                f"{keys.DATALAKE_HISTORICAL_PARTITION} is true; it cannot be dropped",
                ErrorCode.PARTITION_SPEC_INVALID_EXCEPTION,
            )
        if name not in entry.partitions:
            if request.ignore_if_not_exists:
                return pb.DropPartitionResponse()
            raise partition_missing(entry.path, name)
        self._environment.catalog.store.drop_partitions(entry.path, entry.table_id, [name])
        return pb.DropPartitionResponse()

    def _partitioned_table(self, message: pb.PbTablePath) -> TableEntry:
        environment = self._environment
        environment.catalog.refresh()
        path = table_path(message)
        entry = environment.table(path)
        check_partitioned(entry)
        return entry

    def _check_time(self, entry: TableEntry, values: list[str]) -> None:
        """Check that the value of the time key has the table's format, and would not expire at once."""
        if not entry.property(keys.AUTO_PARTITION_ENABLED) and entry.property(keys.AUTO_PARTITION_TIME_FORMAT) is None:
            return
        settings = read_auto_partition(entry.descriptor)
        value = values[settings.key_position]
        key = entry.descriptor.partition_keys[settings.key_position]
        if not settings.pattern.matches(value):
            raise _invalid_spec(
                f"value {value!r} of partition key {key!r} in table '{entry.path}' is not a time in the format "
                f"{settings.pattern.text!r}"
            )
        oldest = settings.oldest_retained(self._environment.clock()) if settings.enabled else None
        if oldest is not None and value < oldest:
            raise _invalid_spec(
                f"value {value!r} of partition key {key!r} in table '{entry.path}' has already expired; "
                f"the oldest that is kept is {oldest!r} ({keys.AUTO_PARTITION_NUM_RETENTION})"
            )


def _checked_values(entry: TableEntry, message: pb.PbPartitionSpec, *, internal_prefix_allowed: bool) -> list[str]:
    """Return the values in partition-key order; code 43 unless every key has exactly one valid value."""
    spec = partition_spec(message)
    partition_keys = entry.descriptor.partition_keys
    given = dict(spec)
    if len(spec) != len(partition_keys) or given.keys() != set(partition_keys):
        raise _invalid_spec(
            f"table '{entry.path}' is partitioned by {', '.join(partition_keys)}; give one value for each, "
            f"got {', '.join(f'{key}={value}' for key, value in spec) or 'none'}"
        )
    for key in partition_keys:
        check_partition_value(key, given[key], internal_prefix_allowed=internal_prefix_allowed)
    return [given[key] for key in partition_keys]


def _invalid_spec(message: str) -> FlussError:
    return FlussError(message, ErrorCode.PARTITION_SPEC_INVALID_EXCEPTION)
