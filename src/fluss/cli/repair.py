"""``fluss repair catalog|orphans``: for a data directory whose server does not start, or that has orphans."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from fluss.cli.client_flags import name_value_pairs
from fluss.errors import ErrorCode, FlussError


def add_parser(commands: Any) -> None:
    """Declare the subcommand and its flags."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "repair",
        help="repair the data directory of a server that is stopped",
        description="Repair the data directory of a server that is stopped. Without --apply or --delete nothing is "
        "changed: what would be done is printed.",
    )
    jobs = parser.add_subparsers(dest="job", metavar="JOB", required=True)
    catalog = jobs.add_parser(
        "catalog",
        help="rebuild a lost or damaged catalog",
        description="Rebuild a lost, damaged or old catalog: from the newest safety copy and whatever newer facts the "
        "directories of the tables have, or from those directories alone. The files of the old catalog are kept.",
    )
    catalog.add_argument("--apply", action="store_true", help="apply the repair; without this flag it is only printed")
    catalog.add_argument(
        "--from-tables", action="store_true", help="use no safety copy, only the directories of the tables"
    )
    catalog.add_argument(
        "--forget-staged", action="store_true", help="drop staged rows whose commits may already be decided"
    )
    catalog.add_argument(
        "-o",
        "--option",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="an option of the server, for reading tables with auto-increment columns, such as remote.data.dir=DIR; "
        "may be repeated",
    )
    catalog.set_defaults(run=run_catalog)
    orphans = jobs.add_parser(
        "orphans",
        help="show or delete directories that a start has put aside",
        description="Show the directories that a start has put aside because the catalog did not know them.",
    )
    orphans.add_argument("--delete", action="store_true", help="delete the orphans; their remote objects stay")
    orphans.set_defaults(run=run_orphans)
    for job in (catalog, orphans):
        job.add_argument("--data", metavar="DIR", required=True, help="the data directory; its server must be stopped")


def run_catalog(options: argparse.Namespace) -> int:
    """Plan the repair of the catalog and print it; apply it with --apply."""
    from fluss.server.process.data_directory import DataDirectory
    from fluss.server.process.repair import apply_catalog, plan_catalog

    data = _existing(options.data)
    directory = DataDirectory(data, for_repair=True)
    try:
        plan = plan_catalog(data, use_copy=not options.from_tables)
        print("\n".join(plan.lines()))
        if not options.apply:
            print("nothing was changed; repeat the command with --apply to apply the repair")
            return 0
        kept = apply_catalog(plan, forget_staged=options.forget_staged)
    finally:
        directory.close()
    if kept:
        print(f"the files of the old catalog are kept: {', '.join(path.name for path in kept)}")
    _continue_numbers(data, name_value_pairs("--option", options.option))
    print(f"the catalog {data / 'catalog.sqlite'} is in place; start the server")
    return 0


def _continue_numbers(data: Path, server_options: dict[str, str]) -> None:
    """Raise the counters of auto-increment columns above the highest number in their tables.

    The server itself reads the tables, on a private port: rows may be in the changelog alone.
    """
    import fluss
    from fluss.server.process.repair import auto_increment_columns, set_auto_increment

    columns = auto_increment_columns(data)
    if not columns:
        return
    highest = {}
    try:
        with fluss.embedded(data, config=server_options) as cluster, fluss.connect(cluster.bootstrap_servers) as db:
            for table_id, (table, column) in columns.items():
                numbers = db.to_arrow(table, [column]).column(column).to_pylist()
                highest[table_id] = max((number for number in numbers if number is not None), default=0)
    except FlussError as error:
        raise FlussError(
            f"the catalog is in place, but not all of {', '.join(name for name, _ in columns.values())} can be read, "
            f"so their auto-increment columns may assign numbers twice: {error.message}. Fix that and repeat the "
            "command before any client writes",
            ErrorCode.STORAGE_EXCEPTION,
        ) from None
    set_auto_increment(data, highest)
    for table_id, (table, column) in columns.items():
        print(f"column {column} of {table} continues above {highest[table_id]}")


def run_orphans(options: argparse.Namespace) -> int:
    """List the orphans, and delete them with --delete."""
    from fluss.server.process.data_directory import DataDirectory
    from fluss.server.process.orphans import delete_orphan, list_orphans

    data = _existing(options.data)
    directory = DataDirectory(data, for_repair=True)
    try:
        orphans = list_orphans(data)
        for orphan in orphans:
            print(f"{orphan.path}: {orphan.name}, {orphan.size_bytes} bytes")
            for remote in orphan.remote_directories:
                print(f"  remote objects that are kept: {remote}")
            if options.delete:
                delete_orphan(orphan, data)
    finally:
        directory.close()
    if not orphans:
        print(f"there are no orphans in {data}")
    else:
        print(
            f"{len(orphans)} deleted"
            if options.delete
            else "nothing was deleted; repeat the command with --delete to delete them"
        )
    return 0


def _existing(name: str) -> Path:
    data = Path(name)
    if not data.is_dir():
        raise FlussError(f"there is no data directory {data}: check --data", ErrorCode.INVALID_CONFIG_EXCEPTION)
    return data
