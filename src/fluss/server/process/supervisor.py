"""The supervisor: opens the sockets, forks the roles, restarts dead ones, and stops all in order.

Theory. The supervisor imports everything, so that its children share those pages, and then only waits. It never has a
thread, an event loop or a database: ``fork`` would copy them in whatever state they are. It keeps all listening sockets
for its whole life: when a child dies, clients wait in the backlog and are served by its successor on the same port.

States of a child: starting -> ready -> dead -> (after a delay) starting. A child that dies *before* it was ready counts
against `CRASH_LOOP_LIMIT_DEATHS`; being ready clears the count. The delay grows with early deaths, so a role that
cannot start does not occupy a processor, while a ready role that is killed is restarted at once. During the first start
of the server, an exit code that means "cannot start" ends everything, because a user is waiting for that message.

A child sends a heartbeat every second (`fluss.server.runtime.heartbeat`). After half of `hang_seconds` without one, a
signal makes it write its stacks to the log; after all of it, the child is killed and restarted: clients wait for a role
that comes back, but would wait forever for one that hangs. Time in which the supervisor itself did not run does not
count.

Invariants: the ready line is printed once, when every role serves; signal handlers only record the signal, and the loop
of `Supervisor.run` acts on it; each child gets only its own end of the life line, so however the supervisor dies, all
children end.
"""

from __future__ import annotations

import contextlib
import faulthandler
import logging
import os
import selectors
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType

from fluss.server.runtime.exit_codes import EXIT_CANNOT_START, EXIT_FAILED
from fluss.server.runtime.heartbeat import BEAT_SECONDS, READY, HeartbeatSender

logger = logging.getLogger(__name__)

CRASH_LOOP_LIMIT_DEATHS = 10
RESTART_DELAY_FIRST_SECONDS = 0.1
RESTART_DELAY_LONGEST_SECONDS = 2.0
# A child that dies sooner than this after it was ready is treated like one that was never ready.
HEALTHY_LIFE_SECONDS = 0.5
STOP_DEADLINE_SECONDS = 30.0
HANG_SECONDS = 30.0
# Some programs signal the process and then its whole group: only a later second signal means "stop now".
SAME_STOP_REQUEST_SECONDS = 0.5

_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_HANDLED_SIGNALS = (*_STOP_SIGNALS, signal.SIGCHLD)

ChildMain = Callable[[str, HeartbeatSender, int], int]
"""Runs in the child, with role name, heartbeat sender and descriptor of the life line; returns the exit code."""


@dataclass
class _Child:
    """The process of one role, if it has one."""

    role: str
    process_id: int = 0
    """0 if there is no process."""
    pipe: int = -1
    """The pipe that its heartbeats arrive on."""
    last_heartbeat_at: float = 0.0
    was_told_to_dump: bool = False
    started_at: float = 0.0
    is_ready: bool = False
    early_deaths: int = 0
    start_at: float = 0.0
    """The time at which to start the process again; only meaningful while there is none."""


class Supervisor:
    """Runs roles as child processes until it is signalled to stop. Used from the only thread of a process."""

    def __init__(
        self,
        roles: list[str],
        child_main: ChildMain,
        ready_line: str,
        stop_deadline_seconds: float = STOP_DEADLINE_SECONDS,
        hang_seconds: float = HANG_SECONDS,
    ) -> None:
        self._children = [_Child(role) for role in roles]
        self._child_main = child_main
        self._ready_line = ready_line
        self._stop_deadline_seconds = stop_deadline_seconds
        self._hang_seconds = hang_seconds
        self._checked_at = time.monotonic()
        self._announced = False
        self._stop_requests = 0
        self._stop_requested_at = 0.0
        self._failed = False
        self._selector = selectors.DefaultSelector()
        self._life_line_read, self._life_line_write = os.pipe()
        self._wake_read, self._wake_write = os.pipe()
        for descriptor in (self._wake_read, self._wake_write):
            os.set_blocking(descriptor, False)

    def run(self) -> int:
        """Serve until stopped; return exit code 0 after a stop by signal, 1 if a role could not be kept running."""
        previous = {number: signal.signal(number, self._note_signal) for number in _HANDLED_SIGNALS}
        previous_wakeup = signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        self._selector.register(self._wake_read, selectors.EVENT_READ, None)
        try:
            while not self._stop_requests and not self._failed:
                self._start_due()
                self._wait(self._longest_wait())
                self._reap()
                self._check_heartbeats()
            self._stop_all()
        finally:
            signal.set_wakeup_fd(previous_wakeup)
            for number, handler in previous.items():
                signal.signal(number, handler)
            self._close()
        return EXIT_FAILED if self._failed else 0

    def _note_signal(self, number: int, frame: FrameType | None) -> None:
        if number not in _STOP_SIGNALS:
            return
        now = time.monotonic()
        if self._stop_requests == 0 or now - self._stop_requested_at >= SAME_STOP_REQUEST_SECONDS:
            self._stop_requests += 1
            self._stop_requested_at = now

    def _start_due(self) -> None:
        now = time.monotonic()
        for child in self._children:
            if child.process_id == 0 and child.start_at <= now:
                self._fork(child)

    def _longest_wait(self) -> float:
        """The time until the next start is due, but no longer than the interval of checks for hung children."""
        starts = [child.start_at for child in self._children if child.process_id == 0]
        return min(BEAT_SECONDS, max(0.0, min(starts) - time.monotonic())) if starts else BEAT_SECONDS

    def _fork(self, child: _Child) -> None:
        pipe_read, pipe_write = os.pipe()
        # The child would handle a signal before its own set-up as the supervisor does: block signals until then.
        signal.pthread_sigmask(signal.SIG_BLOCK, _HANDLED_SIGNALS)
        try:
            process_id = os.fork()
            if process_id == 0:
                self._become_child(child.role, pipe_read, pipe_write)
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _HANDLED_SIGNALS)
        os.close(pipe_write)
        child.process_id = process_id
        child.pipe = pipe_read
        child.started_at = child.last_heartbeat_at = time.monotonic()
        child.is_ready = child.was_told_to_dump = False
        self._selector.register(pipe_read, selectors.EVENT_READ, child)

    def _become_child(self, role: str, pipe_read: int, pipe_write: int) -> None:
        """In the child: close what belongs to the supervisor and run the role. Never returns."""
        code = EXIT_FAILED
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            faulthandler.register(signal.SIGUSR1, all_threads=True)  # "kill -USR1" writes the stacks of all threads.
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _HANDLED_SIGNALS)
            self._selector.close()
            other_pipes = [child.pipe for child in self._children if child.pipe >= 0]
            for descriptor in (self._life_line_write, self._wake_read, self._wake_write, pipe_read, *other_pipes):
                os.close(descriptor)
            # Only the supervisor writes to standard output, and readers must see when it ends.
            os.dup2(sys.__stderr__.fileno() if sys.__stderr__ else 2, 1)
            code = self._child_main(role, HeartbeatSender(pipe_write), self._life_line_read)
        except BaseException:
            logger.exception("%s failed", role)
        finally:
            logging.shutdown()
            os._exit(code)

    def _wait(self, timeout: float | None) -> None:
        for key, _ in self._selector.select(timeout):
            if key.data is None:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._wake_read, 4096)
            else:
                self._read_heartbeats(key.data)

    def _read_heartbeats(self, child: _Child) -> None:
        """Read heartbeats. At the end of the pipe the process is dying, which `_reap` notices."""
        heard = os.read(child.pipe, 4096)
        if not heard:
            self._forget_pipe(child)
        child.last_heartbeat_at = time.monotonic()
        child.was_told_to_dump = False
        if READY not in heard:
            return
        child.is_ready = True
        child.early_deaths = 0
        if self._announced:
            logger.info("%s serves again (process %d)", child.role, child.process_id)
        elif all(each.is_ready for each in self._children):
            self._announced = True
            print(self._ready_line, flush=True)

    def _forget_pipe(self, child: _Child) -> None:
        if child.pipe >= 0:
            self._selector.unregister(child.pipe)
            os.close(child.pipe)
            child.pipe = -1

    def _check_heartbeats(self) -> None:
        now = time.monotonic()
        away = (
            now - self._checked_at - 2 * BEAT_SECONDS
        )  # the supervisor was stopped together with its children, or the machine is overloaded
        self._checked_at = now
        for child in self._children:
            if away > 0:
                child.last_heartbeat_at += away
            silent = now - child.last_heartbeat_at
            if child.process_id == 0 or silent < self._hang_seconds / 2:
                continue
            name = f"{child.role} (process {child.process_id})"
            if not child.was_told_to_dump:
                child.was_told_to_dump = True
                logger.error(
                    "%s (process %d): no heartbeat for %.0f s, its stacks follow",
                    child.role,
                    child.process_id,
                    silent,
                )
                os.kill(child.process_id, signal.SIGUSR1)
            if silent >= self._hang_seconds:
                logger.error("%s: no heartbeat for %.0f s, killing it; nothing acknowledged is lost", name, silent)
                os.kill(child.process_id, signal.SIGKILL)
                child.last_heartbeat_at = now  # the child may take a moment to die

    def _reap(self) -> None:
        for child in self._children:
            if child.process_id == 0:
                continue
            process_id, status = os.waitpid(child.process_id, os.WNOHANG)
            if process_id != 0:
                self._note_death(child, os.waitstatus_to_exitcode(status))

    def _note_death(self, child: _Child, exit_code: int) -> None:
        self._forget_pipe(child)
        lived_seconds = time.monotonic() - child.started_at
        was_healthy = child.is_ready and lived_seconds >= HEALTHY_LIFE_SECONDS
        process_id, child.process_id = child.process_id, 0
        if self._stop_requests or self._failed:
            child.is_ready = False
            return
        child.early_deaths = 0 if child.is_ready else child.early_deaths + 1
        child.is_ready = False
        how = _describe_exit(exit_code)
        if exit_code == EXIT_CANNOT_START and not self._announced:
            logger.error("%s cannot start, see the line above; the server stops", child.role)
            self._failed = True
        elif child.early_deaths >= CRASH_LOOP_LIMIT_DEATHS:
            logger.error(
                "%s %s; it died %d times before it could serve, so the server stops. The lines above have the reasons",
                child.role,
                how,
                child.early_deaths,
            )
            self._failed = True
        else:
            delay = 0.0 if was_healthy else _restart_delay_seconds(child.early_deaths)
            child.start_at = time.monotonic() + delay
            logger.warning("%s (process %d) %s; restarting it in %.1f s", child.role, process_id, how, delay)

    def _stop_all(self) -> None:
        """Send SIGTERM to all children; after the deadline, or at a second signal, SIGKILL."""
        deadline = time.monotonic() + self._stop_deadline_seconds
        requests_before = self._stop_requests
        self._signal_children(signal.SIGTERM)
        while any(child.process_id for child in self._children):
            remaining = deadline - time.monotonic()
            if remaining <= 0 or self._stop_requests > requests_before:
                left = [child.role for child in self._children if child.process_id]
                logger.error(
                    "%s did not stop in time and will be killed; nothing acknowledged is lost", ", ".join(left)
                )
                self._signal_children(signal.SIGKILL)
                requests_before, deadline = self._stop_requests, time.monotonic() + self._stop_deadline_seconds
                remaining = self._stop_deadline_seconds
            self._wait(min(remaining, 1.0))
            self._reap()

    def _signal_children(self, number: signal.Signals) -> None:
        for child in self._children:
            if child.process_id:
                os.kill(child.process_id, number)

    def _close(self) -> None:
        self._selector.close()
        for descriptor in (self._life_line_read, self._life_line_write, self._wake_read, self._wake_write):
            os.close(descriptor)


def _restart_delay_seconds(early_deaths: int) -> float:
    return min(RESTART_DELAY_FIRST_SECONDS * float(1 << max(0, early_deaths - 1)), RESTART_DELAY_LONGEST_SECONDS)


def _describe_exit(exit_code: int) -> str:
    if exit_code < 0:
        return f"was killed by signal {-exit_code} ({signal.Signals(-exit_code).name})"
    return f"ended with exit code {exit_code}"
