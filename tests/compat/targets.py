"""The servers that cases run against: this project's server as a process, embedded, and Apache Fluss.

All three get the same options, written for Apache Fluss: a plaintext listener FLUSS, a listener CLIENT with SASL/PLAIN.
"""

from __future__ import annotations

import shutil
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import fluss
from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol.api_keys import ApiKey
from tools.peers.apache_fluss import ApacheFluss
from tools.servers.logins import jaas_config
from tools.servers.ports import free_ports
from tools.servers.server_process import ServerProcess
from tools.servers.wire_client import WireClient

TABLETS = 2

# Small limits, so that a case can reach them.
_LIMITS = {"max.partition.num": "8", "max.bucket.num": "32"}
CONFIG: Mapping[str, Mapping[str, str]] = {
    "plain": _LIMITS,
    # 120 bytes: every batch rolls a segment.
    "remote": {**_LIMITS, "log.segment.file-size": "120b", "remote.log.task-interval-duration": "1s"},
    "guarded": {**_LIMITS, "authorizer.enabled": "true"},
    "own": _LIMITS,
}
_SECURITY = {
    "internal.listener.name": "FLUSS",
    "security.protocol.map": "CLIENT:sasl",
    "security.sasl.enabled.mechanisms": "plain",
    "security.sasl.plain.jaas.config": jaas_config(),
    "super.users": "User:admin",
}


class Target(ABC):
    """One running server of one kind: a key of `CONFIG`."""

    def __init__(self, kind: str) -> None:
        self.config = CONFIG[kind]

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """What cases need to know."""

    @abstractmethod
    def disturb(self, how: str) -> None:
        """Let the server go away and come back: "crash" or "restart"."""

    def ask(self, what: str) -> None:
        """Do what a case wants: disturb the server, or what pyfluss has no call for.

        "crash", "restart", "add_column DATABASE TABLE COLUMN", "grant USER OPERATION DATABASE TABLE",
        "tiered DATABASE TABLE" (give a table of id and name 100 rows; Apache Fluss tiers what is not there)
        "lake_snapshot DATABASE TABLE ID OFFSET..." (a tiered table, one offset per bucket)
        """
        words = what.split()
        if words[0] == "add_column":
            _add_column(self.settings()["bootstrap"], *words[1:])
        elif words[0] == "grant":
            _grant(self.settings()["bootstrap"], *words[1:])
        elif words[0] == "tiered":
            if not isinstance(self, ApacheTarget):
                append_rows(self.settings()["bootstrap"], *words[1:])
        elif words[0] == "lake_snapshot":
            lake_snapshot(self.settings()["bootstrap"], *words[1:])
        else:
            self.disturb(what)

    @abstractmethod
    def stop(self) -> None:
        """End the server and remove its data."""

    def is_as_it_was(self) -> bool:
        """Whether nothing has happened to it that no case asked for: what runs meanwhile says nothing about cases."""
        return True


class ApacheTarget(Target):
    """Apache Fluss 0.9.1."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self._cluster = ApacheFluss(self.config)
        self._cluster.__enter__()

    def settings(self) -> dict[str, Any]:
        return {
            "target": "apache",
            "bootstrap": self._cluster.bootstrap_servers,
            "sasl_bootstrap": self._cluster.sasl_bootstrap_servers,
            "tablets": 1,
            "data_directory": str(self._cluster.directory / "data"),
            "remote_directory": str(self._cluster.directory / "remote"),
        }

    def disturb(self, how: str) -> None:
        assert how in ("crash", "restart"), how
        self._cluster.restart_tablet()

    def is_as_it_was(self) -> bool:
        return self._cluster.healed == 0

    def stop(self) -> None:
        self._cluster.stop()


class StandaloneTarget(Target):
    """`fluss server` as a process, with the server.yaml of an Apache Fluss cluster."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self._directory = Path(tempfile.mkdtemp(prefix="fluss-compat-"))
        self._ports = free_ports(2)
        options = {
            **self.config,
            **_SECURITY,
            "bind.listeners": f"FLUSS://127.0.0.1:{self._ports[0]}, CLIENT://127.0.0.1:{self._ports[1]}",
            "remote.data.dir": str(self._directory / "remote"),
            "default.replication.factor": "1",
            "zookeeper.address": "127.0.0.1:2181",
            "tablet-server.id": "0",
            "kv.snapshot.interval": "30s",
        }
        text = "".join(f"{key}: {value}\n" for key, value in options.items())
        config = self._directory / "server.yaml"
        config.write_text(text)
        data = self._directory / "data"
        self._server = ServerProcess(data, "--config", str(config), bind=None, tablets=TABLETS)

    def settings(self) -> dict[str, Any]:
        return {
            "target": "standalone",
            "bootstrap": f"127.0.0.1:{self._ports[0]}",
            "sasl_bootstrap": f"127.0.0.1:{self._ports[1]}",
            "tablets": TABLETS,
            "data_directory": str(self._directory / "data"),
            "remote_directory": str(self._directory / "remote"),
        }

    def disturb(self, how: str) -> None:
        if how == "crash":  # the coordinator dies with the tablets: the harder case
            for role in ("coordinator", *(f"tablet-{number}" for number in range(TABLETS))):
                self._server.kill_role(role)
        elif how == "restart":
            self._server.stop()
            self._server.start()
        else:
            raise ValueError(how)

    def stop(self) -> None:
        self._server.stop()
        shutil.rmtree(self._directory, ignore_errors=True)


class EmbeddedTarget(Target):
    """The same server inside the test process."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        import fluss

        self._directory = Path(tempfile.mkdtemp(prefix="fluss-compat-"))
        options = {
            **self.config,
            **_SECURITY,
            "bind.listeners": "FLUSS://127.0.0.1:0, CLIENT://127.0.0.1:0",
            "remote.data.dir": str(self._directory / "remote"),
        }
        self._cluster = fluss.embedded(self._directory / "data", config=options)

    def settings(self) -> dict[str, Any]:
        return {
            "target": "embedded",
            "bootstrap": self._cluster.bootstrap_servers,
            "sasl_bootstrap": self._cluster.listener_address("CLIENT"),
            "tablets": 1,
            "data_directory": str(self._directory / "data"),
            "remote_directory": str(self._directory / "remote"),
        }

    def disturb(self, how: str) -> None:
        raise ValueError(f"an embedded server cannot {how}")

    def stop(self) -> None:
        self._cluster.close()
        shutil.rmtree(self._directory, ignore_errors=True)


def _add_column(bootstrap: str, database: str, table: str, column: str) -> None:
    """Add a nullable STRING column at the end."""
    request = pb.AlterTableRequest(ignore_if_not_exists=False)
    request.table_path.database_name = database
    request.table_path.table_name = table
    request.add_columns.add(column_name=column, data_type_json=b'{"type":"STRING"}', column_position_type=0)
    with WireClient.connect(bootstrap) as client:
        client.call(ApiKey.ALTER_TABLE, request)


def _grant(bootstrap: str, user: str, operation: str, database: str, table: str) -> None:
    """Allow a user an operation on a table, through the internal listener, where everything is allowed."""
    operations = {"READ": 3, "WRITE": 4, "DESCRIBE": 8}
    request = pb.CreateAclsRequest()
    request.acl.add(
        resource_name=f"{database}.{table}",
        resource_type=4,
        principal_name=user,
        principal_type="User",
        host="*",
        operation_type=operations[operation],
        permission_type=2,
    )
    with WireClient.connect(bootstrap) as client:
        client.call(ApiKey.CREATE_ACLS, request)


def append_rows(bootstrap: str, database: str, table: str) -> None:
    """100 rows of id and name: what the lake has must have been written."""
    with fluss.connect(bootstrap) as db:
        db.append(f"{database}.{table}", [{"id": number, "name": "x"} for number in range(100)])


def lake_snapshot(bootstrap: str, database: str, table: str, snapshot_id: str, *offsets: str) -> None:
    """Register a snapshot as a tiering service does."""
    path = pb.PbTablePath(database_name=database, table_name=table)
    with WireClient.connect(bootstrap) as client:
        table_id = client.call(ApiKey.GET_TABLE_INFO, pb.GetTableInfoRequest(table_path=path)).table_id
        prepare = pb.PrepareLakeTableSnapshotRequest()
        entry = prepare.bucket_offsets.add(table_id=table_id, table_path=path)
        for bucket_id, offset in enumerate(offsets):
            entry.bucket_offsets.add(bucket_id=bucket_id, log_end_offset=int(offset))
        (prepared,) = client.call(ApiKey.PREPARE_LAKE_TABLE_SNAPSHOT, prepare).prepare_lake_table_resp
        commit = pb.CommitLakeTableSnapshotRequest()
        commit.lake_table_snapshot_metadata.add(
            table_id=table_id,
            snapshot_id=int(snapshot_id),
            tiered_bucket_offsets_file_path=prepared.lake_table_offsets_path,
        )
        (answer,) = client.call(ApiKey.COMMIT_LAKE_TABLE_SNAPSHOT, commit).table_resp
        assert not answer.HasField("error_code"), answer.error_message


TARGETS: Mapping[str, type[Target]] = {
    "standalone": StandaloneTarget,
    "embedded": EmbeddedTarget,
    "apache": ApacheTarget,
}
