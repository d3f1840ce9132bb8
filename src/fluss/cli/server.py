"""``fluss server``: runs the supervisor in the foreground, with a coordinator and N tablets as its children."""

from __future__ import annotations

import argparse
import gc
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fluss.errors import ErrorCode, FlussError

if TYPE_CHECKING:
    from fluss.server.config.server_config import ServerConfig
    from fluss.server.runtime.heartbeat import HeartbeatSender

logger = logging.getLogger(__name__)

# The soft limit on open files if there is no hard one.
ENOUGH_OPEN_FILES = 65_536
LOG_LEVELS = ("debug", "info", "warning", "error")


def add_parser(commands: Any) -> None:
    """Declare the subcommand and its flags."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "server",
        help="run a durable server on this machine",
        description="Run a durable server on this machine, in the foreground. SIGINT and SIGTERM stop it cleanly. When "
        "it is ready, it prints one line with the address of every listener on standard output.",
    )
    parser.add_argument("--data", metavar="DIR", help="directory for all data of the server; created if missing")
    parser.add_argument(
        "--bind",
        metavar="HOST:PORT",
        help="where clients connect, by default 127.0.0.1:9123; port 0 chooses a free one. "
        "Several listeners: 'FLUSS://HOST:PORT, CLIENT://HOST:PORT'",
    )
    parser.add_argument("--tablets", metavar="N", help="number of tablet processes, by default 1")
    parser.add_argument("--config", metavar="FILE", help="a server.yaml; flags win over its options")
    parser.add_argument(
        "-o",
        "--option",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="one option, as in the configuration file; may be repeated",
    )
    parser.add_argument("--log-level", choices=LOG_LEVELS, default="info", help="how much is logged, by default info")
    parser.add_argument(
        "--log-dir", metavar="DIR", help="log to rotated files in this directory instead of standard error"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Load the configuration, lock the directory, open the ports, fork, supervise."""
    if not hasattr(os, "fork"):
        raise FlussError(f"fluss server needs fork, which {os.name} lacks: use fluss.embedded", ErrorCode.CLIENT_ERROR)
    _keep_libraries_from_starting_threads()
    from fluss.server.config.server_config import ServerConfig
    from fluss.server.runtime.log_output import set_up_logging, write_stacks_on_signal

    log_dir = Path(options.log_dir) if options.log_dir else None
    set_up_logging("supervisor", options.log_level, log_dir)
    config = ServerConfig.load(options.config, _overrides(options))
    _raise_open_files_limit()

    def name_process(role: str) -> None:
        set_up_logging(role, options.log_level, log_dir)
        write_stacks_on_signal(role, log_dir)

    return _supervise(config, name_process)


def _keep_libraries_from_starting_threads() -> None:
    """Prevent threads before the fork: libraries of NumPy and pyarrow would start threads when they are loaded."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ.setdefault("JE_ARROW_MALLOC_CONF", "background_thread:false")


def _raise_open_files_limit() -> None:
    """Raise the limit on open files, which children inherit: connections and segments often need more than 1,024."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = ENOUGH_OPEN_FILES if hard == resource.RLIM_INFINITY else hard
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (ValueError, OSError) as error:
        logger.warning(
            "this process may open only %d files, and the limit cannot be raised to %d: %s", soft, wanted, error
        )


def _overrides(options: argparse.Namespace) -> dict[str, str]:
    overrides: dict[str, str] = {}
    for text in options.option:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise FlussError(f"--option must be NAME=VALUE, got {name!r}", ErrorCode.INVALID_CONFIG_EXCEPTION)
        overrides[name.strip()] = value.strip()
    flags = {"data.dir": options.data, "bind.listeners": options.bind, "server.tablets": options.tablets}
    overrides.update({name: value for name, value in flags.items() if value is not None})
    return overrides


def _supervise(config: ServerConfig, name_process: Callable[[str], None]) -> int:
    from fluss.server.process.child import run_role
    from fluss.server.process.data_directory import DataDirectory, keep_files_private
    from fluss.server.process.roles import role_names
    from fluss.server.process.sockets import open_sockets
    from fluss.server.process.supervisor import Supervisor

    keep_files_private(config)
    directory = DataDirectory(config.data_dir)
    try:
        sockets = open_sockets(config, directory)
        gc.collect()
        # Children share these pages as long as nothing writes to them, not even the garbage collector.
        gc.freeze()

        def child_main(role: str, heart: HeartbeatSender, life_line: int) -> int:
            name_process(role)
            return run_role(role, config, sockets, heart, life_line)

        ready_line = f"fluss server ready: {sockets.describe()} (tablets {config.tablet_count}, data {config.data_dir})"
        supervisor = Supervisor(role_names(config), child_main, ready_line, hang_seconds=config.hang_timeout_ms / 1000)
        return supervisor.run()
    finally:
        directory.close()
