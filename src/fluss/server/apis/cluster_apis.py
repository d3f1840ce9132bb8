"""Requests about the cluster as a whole: its options and its health."""

from __future__ import annotations

from fluss.protocol import fluss_api_pb2 as pb
from fluss.server.apis.environment import Environment
from fluss.server.config.options import is_secret
from fluss.server.config.server_config import REDACTED
from fluss.server.runtime.handlers import RequestContext

INITIAL_SOURCE = "INITIAL_SERVER_CONFIG"
DYNAMIC_SOURCE = "DYNAMIC_SERVER_CONFIG"
HEALTH_GREEN = 0


class ClusterApis:
    """Handlers of DESCRIBE_CLUSTER_CONFIGS and GET_CLUSTER_HEALTH."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment

    def describe_cluster_configs(
        self, context: RequestContext, request: pb.DescribeClusterConfigsRequest
    ) -> pb.DescribeClusterConfigsResponse:
        """Return the configured options, overridden by those set at run time; secrets are redacted."""
        self._environment.catalog.refresh()
        dynamic = self._environment.catalog.cluster_config
        response = pb.DescribeClusterConfigsResponse()
        for key, value in sorted(self._environment.config.public_values().items()):
            if key not in dynamic:
                response.configs.add(config_key=key, config_value=value, config_source=INITIAL_SOURCE)
        for key, value in dynamic.items():
            shown = REDACTED if is_secret(key) else value
            response.configs.add(config_key=key, config_value=shown, config_source=DYNAMIC_SOURCE)
        return response

    def get_cluster_health(
        self, context: RequestContext, request: pb.GetClusterHealthRequest
    ) -> pb.GetClusterHealthResponse:
        """Report every bucket as healthy: it has one replica, and a tablet that died is restarted at once."""
        self._environment.catalog.refresh()
        buckets = sum(
            entry.bucket_count * (len(entry.partitions) if entry.is_partitioned else 1)
            for entry in self._environment.catalog.tables()
        )
        return pb.GetClusterHealthResponse(
            num_replicas=buckets,
            in_sync_replicas=buckets,
            num_leader_replicas=buckets,
            active_leader_replicas=buckets,
            status=HEALTH_GREEN,
        )
