"""``fluss admin JOB``: options, servers, permissions and leases of a running cluster.

Jobs have the names of the functions of the Python API, with dashes. Lists go to standard output, one item per line with
tabs between its parts, so that other programs can read them.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from fluss.cli.client_flags import add_client_flags, client_settings, name_value_pairs, table_name
from fluss.errors import FlussError
from fluss.model.paths import TablePath

if TYPE_CHECKING:
    from fluss.api.admin import FlussAdmin
    from fluss.values.acls import Acl

POLL_SECONDS = 1.0
OPERATIONS = ("all", "read", "write", "create", "drop", "alter", "describe")
TAGS = ("permanent_offline", "temporary_offline")
GOALS = ("replica_distribution", "leader_distribution", "rack_aware")
RESOURCE_HELP = "cluster, cluster.DB or cluster.DB.TABLE"

Rows = list[tuple[object, ...]]


class Job(NamedTuple):
    """A subcommand: its help text, its flags and its function."""

    help_text: str
    add_flags: Callable[[argparse.ArgumentParser], object]
    do: Callable[[FlussAdmin, argparse.Namespace], Awaitable[Rows]]


def add_parser(commands: Any) -> None:
    """Declare the subcommand, its jobs and their flags."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "admin",
        help="options, servers and permissions of a cluster",
        description="Inspect and change a running cluster. Lists are printed one item per line, its parts separated "
        "by tabs. Exit code 0: done, 1: refused or failed, 2: wrong flags.",
    )
    jobs = parser.add_subparsers(dest="job", metavar="JOB", required=True)
    for name, job in _JOBS.items():
        text = job.help_text
        one = jobs.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
        add_client_flags(one)
        job.add_flags(one)
        one.set_defaults(run=run, do=job.do)


def run(options: argparse.Namespace) -> int:
    """Connect, run one job, and print its rows."""
    from fluss.api.connection import FlussConnection
    from fluss.config import Config

    with FlussConnection.open(Config(client_settings(options))) as connection:
        for row in asyncio.run(options.do(connection.get_admin(), options)):
            print(*("" if part is None else part for part in row), sep="\t")
    return 0


# Options


async def _get_configs(admin: FlussAdmin, options: argparse.Namespace) -> Rows:
    entries = await admin.describe_cluster_configs()
    return [
        (entry.name, entry.value, entry.source)
        for entry in sorted(entries, key=lambda entry: entry.name)
        if not options.names or entry.name in options.names
    ]


async def _set_configs(admin: FlussAdmin, options: argparse.Namespace) -> Rows:
    await admin.alter_cluster_configs(name_value_pairs("set-cluster-configs", options.values))
    return []


async def _reset_configs(admin: FlussAdmin, options: argparse.Namespace) -> Rows:
    await admin.alter_cluster_configs(remove_values=options.names)
    return []


# Permissions


def _acl_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--principal", metavar="TYPE:NAME", required=True, help="such as User:alice; * is everyone")
    parser.add_argument("--operation", nargs="+", choices=OPERATIONS, required=True, help="the operations to allow")
    parser.add_argument("--resource", required=True, help=RESOURCE_HELP)
    parser.add_argument("--host", default="*", help="the address that clients connect from; by default any")


def _filter_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--principal", metavar="TYPE:NAME", help="only permissions of this principal, such as User:alice"
    )
    parser.add_argument("--operation", choices=("any", *OPERATIONS), help="only permissions for this operation")
    parser.add_argument("--resource", help=f"only permissions on exactly this resource: {RESOURCE_HELP}")
    parser.add_argument("--host", help="only permissions for clients from this address")


def _chosen(options: argparse.Namespace) -> dict[str, str | None]:
    return {name: getattr(options, name) for name in ("principal", "operation", "resource", "host")}


def _acl_rows(acls: Iterable[Acl]) -> Rows:
    return sorted((acl.principal, acl.operation, acl.resource, acl.host) for acl in acls)


async def _create_acls(admin: FlussAdmin, options: argparse.Namespace) -> Rows:
    from fluss.values.acls import Acl

    given = [Acl(options.principal, operation, options.resource, options.host) for operation in options.operation]
    await admin.create_acls(given)
    return []


async def _list_acls(admin: FlussAdmin, options: argparse.Namespace) -> Rows:
    return _acl_rows(await admin.list_acls(**_chosen(options)))


async def _drop_acls(admin: FlussAdmin, options: argparse.Namespace) -> Rows:
    return _acl_rows(await admin.drop_acls(**_chosen(options)))


# Servers


def _tag_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("tag", choices=TAGS)
    parser.add_argument(
        "server_ids", metavar="ID", nargs="+", type=int, help="id of a tablet server, as listed by server-nodes"
    )


async def _server_nodes(admin: FlussAdmin, options: argparse.Namespace) -> Rows:
    nodes = await admin.get_server_nodes()
    return [(node.id, node.server_type, f"{node.host}:{node.port}", node.rack) for node in nodes]


async def _add_tag(admin: FlussAdmin, options: argparse.Namespace) -> Rows:
    await admin.add_server_tag(options.server_ids, options.tag)
    return []


async def _remove_tag(admin: FlussAdmin, options: argparse.Namespace) -> Rows:
    await admin.remove_server_tag(options.server_ids, options.tag)
    return []


def _rebalance_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--goals", nargs="+", choices=GOALS, default=GOALS[:2], help="the goals, most important first")
    parser.add_argument("--wait", action="store_true", help="wait until the rebalance is done, and print its progress")


def _rebalance_id_flag(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("rebalance_id", metavar="ID", nargs="?", help="the rebalance, by default the last one")


async def _rebalance(admin: FlussAdmin, options: argparse.Namespace) -> Rows:
    rebalance_id = await admin.rebalance(options.goals)
    while options.wait:
        progress = await admin.list_rebalance_progress(rebalance_id)
        print(f"fluss admin: {progress}", file=sys.stderr)
        if progress is None or progress.is_done:
            if progress is None or progress.status != "completed":
                status = "unknown" if progress is None else progress.status
                raise FlussError(f"rebalance {rebalance_id} was not completed: its status is {status}")
            break
        await asyncio.sleep(POLL_SECONDS)
    return [(rebalance_id,)]


async def _rebalance_progress(admin: FlussAdmin, options: argparse.Namespace) -> Rows:
    progress = await admin.list_rebalance_progress(options.rebalance_id)
    if progress is None:
        print("fluss admin: there has been no rebalance", file=sys.stderr)
        return []
    print(f"fluss admin: {progress}", file=sys.stderr)
    return [
        (*bucket, move.status, _ids(move.original_replicas), _ids(move.new_replicas))
        for bucket, move in progress.moves.items()
    ]


def _ids(server_ids: Iterable[int]) -> str:
    return ",".join(map(str, server_ids))


async def _cancel_rebalance(admin: FlussAdmin, options: argparse.Namespace) -> Rows:
    await admin.cancel_rebalance(options.rebalance_id)
    return []


# Cursors


def _cursor_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("table", metavar="DB.TABLE")
    parser.add_argument(
        "name", metavar="NAME", help="the name of the cursor, as in the option cursor of a streaming query"
    )


async def _get_cursor(admin: FlussAdmin, options: argparse.Namespace) -> Rows:
    found = await admin.get_cursor(TablePath(*table_name(options.table)), options.name)
    if found is None:
        raise FlussError(f"table {options.table} has no cursor {options.name!r}")
    return [(*bucket[1:], found[bucket]) for bucket in sorted(found, key=lambda each: (each[1] or 0, each[2]))]


async def _drop_cursor(admin: FlussAdmin, options: argparse.Namespace) -> Rows:
    await admin.drop_cursor(TablePath(*table_name(options.table)), options.name)
    return []


async def _drop_lease(admin: FlussAdmin, options: argparse.Namespace) -> Rows:
    await admin.drop_kv_snapshot_lease(options.lease_id)
    return []


_JOBS = {
    "get-cluster-configs": Job(
        "list options: name, value (empty if secret), where it is set",
        lambda parser: parser.add_argument("names", metavar="NAME", nargs="*", help="list only these options"),
        _get_configs,
    ),
    "set-cluster-configs": Job(
        "change options while the cluster runs",
        lambda parser: parser.add_argument("values", metavar="NAME=VALUE", nargs="+"),
        _set_configs,
    ),
    "reset-cluster-configs": Job(
        "reset options to the values of the configuration file",
        lambda parser: parser.add_argument("names", metavar="NAME", nargs="+"),
        _reset_configs,
    ),
    "create-acls": Job("grant permissions", _acl_flags, _create_acls),
    "list-acls": Job("list permissions: principal, operation, resource, host", _filter_flags, _list_acls),
    "drop-acls": Job("revoke permissions, and list those that were revoked", _filter_flags, _drop_acls),
    "server-nodes": Job("list servers: id, kind, address, rack", lambda parser: None, _server_nodes),
    "add-server-tag": Job("mark tablet servers that are to be removed", _tag_flags, _add_tag),
    "remove-server-tag": Job("remove the mark of add-server-tag", _tag_flags, _remove_tag),
    "rebalance": Job("spread buckets over the servers, and print the rebalance's id", _rebalance_flags, _rebalance),
    "list-rebalance-progress": Job(
        "list what a rebalance moves: table, partition, bucket, state, servers before and after",
        _rebalance_id_flag,
        _rebalance_progress,
    ),
    "cancel-rebalance": Job("stop a rebalance; what it has moved stays there", _rebalance_id_flag, _cancel_rebalance),
    "get-cursor": Job("list the positions of a cursor: partition, bucket, next offset", _cursor_flags, _get_cursor),
    "drop-cursor": Job("delete a cursor", _cursor_flags, _drop_cursor),
    "drop-kv-snapshot-lease": Job(
        "release a lease that a reader never released, so that the server can delete its snapshots",
        lambda parser: parser.add_argument("lease_id", metavar="ID"),
        _drop_lease,
    ),
}
