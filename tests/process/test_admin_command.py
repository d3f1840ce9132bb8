"""`fluss admin` as a user runs it: real processes, exit codes, a login, lines for other programs."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Iterator

import pyarrow as pa
import pytest

import fluss
from tools.servers.logins import TWO_LISTENERS, USERS
from tools.servers.server_process import COMMAND, ServerProcess
from tools.waiting import patience

DEADLINE_SECONDS = patience(120.0)
SERVER = {**TWO_LISTENERS, "authorizer.enabled": "true"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("server") / "data", bind=None, config=SERVER) as server:
        yield server


def admin(
    server: ServerProcess, job: str, *arguments: str, user: str | None = None
) -> subprocess.CompletedProcess[str]:
    login = ["--username", user] if user else []
    return subprocess.run(
        [*COMMAND, "admin", job, "--bootstrap", server.addresses["CLIENT" if user else "FLUSS"], *login, *arguments],
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        env={**os.environ, **({"FLUSS_PASSWORD": USERS[user]} if user else {})},
    )


def lines(server: ServerProcess, job: str, *arguments: str, user: str | None = None) -> list[list[str]]:
    """Return what a successful job has printed."""
    done = admin(server, job, *arguments, user=user)
    assert done.returncode == 0, done.stderr
    return [line.split("\t") for line in done.stdout.splitlines()]


def refusal(server: ServerProcess, job: str, *arguments: str, user: str | None = None) -> str:
    """Return the one line that a failed job has printed."""
    done = admin(server, job, *arguments, user=user)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1), done
    return done.stderr


def test_permissions_are_granted_and_revoked(server: ServerProcess) -> None:
    bob = ("--principal", "User:bob", "--resource", "cluster.shop.orders")
    assert "User:alice may not ALL" in refusal(server, "create-acls", *bob, "--operation", "read", user="alice")
    assert lines(server, "create-acls", *bob, "--operation", "read", "write", user="admin") == []
    both = [["User:bob", operation, "cluster.shop.orders", "*"] for operation in ("read", "write")]
    assert lines(server, "list-acls", user="admin") == both
    assert lines(server, "list-acls", "--operation", "write", user="admin") == both[1:]
    assert lines(server, "list-acls", user="alice") == []
    assert "refusing to drop all ACLs" in refusal(server, "drop-acls", user="admin")
    assert lines(server, "drop-acls", "--principal", "User:bob", user="admin") == both
    assert lines(server, "list-acls", user="admin") == []


def test_options_of_the_cluster(server: ServerProcess) -> None:
    name = "kv.snapshot.interval"
    assert lines(server, "set-cluster-configs", f"{name}=5min") == []
    assert lines(server, "get-cluster-configs", name) == [[name, "5min", "DYNAMIC_SERVER_CONFIG"]]
    all_of_them = lines(server, "get-cluster-configs")
    assert ["authorizer.enabled", "true", "INITIAL_SERVER_CONFIG"] in all_of_them
    assert not any(password in part for line in all_of_them for part in line for password in USERS.values())
    assert lines(server, "reset-cluster-configs", name) == []
    assert lines(server, "get-cluster-configs", name) == []
    assert "must be NAME=VALUE" in refusal(server, "set-cluster-configs", name)
    assert "cannot be changed at run time" in refusal(server, "set-cluster-configs", "data.dir=/elsewhere")


def test_servers_tags_rebalances_and_leases(server: ServerProcess) -> None:
    coordinator, tablet = lines(server, "server-nodes")
    assert coordinator[:3] == ["0", "CoordinatorServer", server.addresses["FLUSS"]]
    assert tablet[:2] == ["0", "TabletServer"]
    assert lines(server, "add-server-tag", "temporary_offline", "0") == []
    assert "already has the tag TEMPORARY_OFFLINE" in refusal(server, "add-server-tag", "permanent_offline", "0")
    assert lines(server, "remove-server-tag", "temporary_offline", "0") == []
    done = admin(server, "list-rebalance-progress")
    assert (done.returncode, done.stdout) == (0, "")
    assert "there has been no rebalance" in done.stderr
    done = admin(server, "rebalance", "--wait", "--goals", "rack_aware")
    assert done.returncode == 0, done.stderr
    rebalance_id = done.stdout.strip()
    assert done.stderr == f"fluss admin: rebalance {rebalance_id}: completed, 0 of 0 buckets\n"
    assert lines(server, "list-rebalance-progress", rebalance_id) == []
    assert lines(server, "cancel-rebalance") == []
    assert "unknown rebalance 'another'" in refusal(server, "cancel-rebalance", "another")
    assert lines(server, "drop-kv-snapshot-lease", "unknown") == []


def test_cursors(server: ServerProcess) -> None:
    with fluss.connect(server.addresses["FLUSS"]) as db:
        db.create_table("events", pa.schema([("id", pa.int32())]), bucket_count=12)
        offsets = {fluss.TableBucket(db.info("events").table_id, bucket): 10 + bucket for bucket in range(12)}
        asyncio.run(db.connection.get_admin().move_cursor("fluss.events", "mailer", offsets))
    listed = lines(server, "get-cursor", "events", "mailer")
    assert listed == [["", str(bucket), str(10 + bucket)] for bucket in range(12)]
    assert lines(server, "drop-cursor", "fluss.events", "mailer") == []
    assert "has no cursor 'mailer'" in refusal(server, "get-cursor", "fluss.events", "mailer")


def test_wrong_flags_exit_with_code_2(server: ServerProcess) -> None:
    for arguments in (("add-server-tag", "offline", "0"), ("add-server-tag", "permanent_offline", "x"), ("dance",)):
        done = admin(server, *arguments)
        assert done.returncode == 2
        assert "usage: fluss admin" in done.stderr
