"""The main function of a forked child: runs one role on one event loop until it is stopped or orphaned.

Theory. After ``fork`` the child has the supervisor's imports and sockets and nothing else: no thread, loop or database
exists yet. It keeps its role's sockets, watches the life line, starts its role, reports ready, and then waits for
SIGTERM. It ends in one of three ways:

- SIGTERM: the role stops cleanly, exit code 0.
- The life line (a pipe whose other end only the supervisor holds) ends: the supervisor is gone, so no process would
  restart or stop this one. It exits immediately, from a separate thread, however busy the loop is. Storage survives
  that by design, as it survives ``kill -9``.
- The role cannot start or one of its background tasks fails: exit code 78 for an error whose message has a remedy, 1
  for anything else; the supervisor decides what follows.

SIGINT is ignored: a terminal sends it to the whole process group, and the supervisor turns it into an orderly stop.
"""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import logging
import os
import signal
import sys
import threading
import time
from importlib.abc import MetaPathFinder
from pathlib import Path

from fluss.errors import FlussError
from fluss.server.config.server_config import ServerConfig
from fluss.server.process.roles import Role, make_role
from fluss.server.process.sockets import ServerSockets
from fluss.server.runtime.event_loop import new_event_loop
from fluss.server.runtime.exit_codes import EXIT_CANNOT_START, EXIT_FAILED, EXIT_ORPHANED
from fluss.server.runtime.heartbeat import HeartbeatSender
from fluss.version import VERSION

logger = logging.getLogger(__name__)

# The kernel truncates process names.
_PROCESS_NAME_LIMIT_BYTES = 15


def run_role(
    role_name: str, config: ServerConfig, sockets: ServerSockets, heart: HeartbeatSender, life_line: int
) -> int:
    """Run a role in a child process until it ends; return the exit code."""
    faulthandler.enable()
    heart.beat_while_starting()
    _set_process_name(f"fluss-{role_name}")
    sys.meta_path.insert(0, _WithoutPandas())
    sockets.close_all_but(role_name)
    threading.Thread(target=_exit_when_orphaned, args=(life_line,), name="life-line", daemon=True).start()
    loop = new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        role = make_role(role_name, config, sockets)
        return loop.run_until_complete(_serve(role, heart))
    except FlussError as error:
        logger.error("%s cannot start: %s", role_name, error.message)
        return EXIT_CANNOT_START
    except Exception:
        logger.exception("%s failed", role_name)
        return EXIT_FAILED


async def _serve(role: Role, heart: HeartbeatSender) -> int:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    began_at = time.monotonic()
    await role.start()
    seconds = time.monotonic() - began_at
    logger.info("flusspy %s serves after %.1f s on %s", VERSION, seconds, role.describe())
    # Existing objects live as long as the process, so full garbage collections can skip them.
    gc.collect()
    gc.freeze()
    heart.ready()
    beats = asyncio.create_task(heart.beat(), name="heart")
    stopped = asyncio.ensure_future(stop.wait())
    failed = asyncio.ensure_future(role.wait_failed())
    await asyncio.wait((stopped, failed), return_when=asyncio.FIRST_COMPLETED)
    failure = failed.exception() if failed.done() else None
    stopped.cancel()
    failed.cancel()
    await role.stop()
    beats.cancel()
    if failure is not None:
        raise failure
    return 0


def _exit_when_orphaned(life_line: int) -> None:
    while os.read(life_line, 1):
        pass
    os._exit(EXIT_ORPHANED)


class _WithoutPandas(MetaPathFinder):
    """Blocks pandas: Arrow would import it for the first array of Python values, and no server role needs it."""

    def find_spec(self, name: str, path: object, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("servers do not use pandas", name=name)


def _set_process_name(name: str) -> None:
    """Set the name that ``ps`` and ``top`` show; only Linux has the file."""
    comm = Path("/proc/self/comm")
    if comm.exists():
        comm.write_text(name[:_PROCESS_NAME_LIMIT_BYTES])
